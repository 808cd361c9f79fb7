"""Raw rows of public sets of prompts: true in shape, invented in text."""

SHELF = "A shelf holds 7 jars and 3 of them are empty. How many are full?"
TRIANGLE = r"What is the area of a triangle with base $4$ and height $\frac{9}{2}$?"
COUNT = "Find the number of ways to seat five otters on two benches of three seats."
HEAD = '\n\ndef halves(numbers: list[int]) -> list[float]:\n    """Halve every number."""\n'
VOWELS = "Write a function to count the vowels of a word."
HARBOUR = "A harbour has N piers. Given the tides, print the longest safe stay."
STARTER = "class Solution:\n    def stay(self, tides: List[int]) -> int:\n        "
LETTER = "Write a letter to a lighthouse keeper."
SONG = "Put what follows into the past tense."
ZIG = "Why does my queue of tickets grow without end? Here is the log:\n\nlost 4 tickets"
WEATHER = "What will the weather be like in Bergen tomorrow?"


def tool(name, kind="dict"):
    return {
        "name": name,
        "description": "Look the weather up.",
        "parameters": {
            "type": kind,
            "required": ["town"],
            "properties": {"town": {"type": "string"}, "days": {"type": "float"}},
        },
    }


ROWS = {
    "gsm8k": {"question": SHELF, "answer": "7 - 3 = <<7-3=4>>4\n#### 4"},
    "math500": {
        "problem": TRIANGLE,
        "solution": r"It is $\boxed{9}$.",
        "answer": "9",
        "subject": "Geometry",
        "level": 1,
        "unique_id": "test/geometry/1.json",
    },
    "aime": {"problem": COUNT, "answer": "720", "id": "0"},
    "humaneval": {
        "task_id": "HumanEval/0",
        "prompt": HEAD,
        "canonical_solution": "    return [n / 2 for n in numbers]\n",
        "test": "def check(candidate):\n    assert candidate([2]) == [1]\n",
        "entry_point": "halves",
    },
    "mbpp": {
        "source_file": "Invented",
        "task_id": 2,
        "prompt": VOWELS,
        "code": "def vowels(word): return 0",
        "test_imports": [],
        "test_list": ["assert vowels('tea') == 2"],
    },
    "livecodebench": {
        "question_title": "Harbour",
        "question_content": HARBOUR,
        "platform": "leetcode",
        "question_id": "1",
        "contest_id": "weekly",
        "contest_date": "2025-01-04T00:00:00",
        "starter_code": STARTER,
        "difficulty": "easy",
        "public_test_cases": "[]",
        "private_test_cases": "eJw=",
        "metadata": "{}",
    },
    "mt_bench": {
        "question_id": 81,
        "category": "writing",
        "prompt": [LETTER, "Now make it rhyme."],
        "reference": [],
    },
    "alpaca": {
        "instruction": SONG,
        "input": "She sings.",
        "output": "She sang.",
        "text": "Below is an instruction.",
    },
    "arena_hard": {
        "uid": "0f",
        "category": "hard_prompt",
        "subcategory": "coding",
        "language": "English",
        "prompt": ZIG,
    },
    "bfcl": {
        "id": "simple_0",
        "question": [[{"role": "user", "content": WEATHER}]],
        "function": [tool("weather.forecast")],
    },
    "prompts": {"messages": [{"role": "user", "content": LETTER}]},
}
