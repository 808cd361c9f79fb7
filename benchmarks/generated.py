"""Conversations as the sources have them, generated: chats, code, calls of tools, reasoning."""

import json
import random
from collections.abc import Iterator

from lib.conversation import Conversation, ToolCall, Turn

WORDS = (
    *("the", "a", "list", "of", "numbers", "returns", "value", "function", "when", "key", "file"),
    *("line", "error", "city", "time", "model", "train", "token", "draft", "answer", "question"),
    *("because", "loop", "index", "result", "small", "large", "number", "string", "where", "under"),
    *("every", "other", "first", "last", "between", "over", "Implementierung", "naïve", "façade"),
    *("don't", "it's", "e.g.", "3.14", "2024-05-01", "x_1", "HTTP/1.1", "**bold**", "…", "—"),
)
FOREIGN = (
    "Café “Zürich” – naïve",
    "数据和文字，以及标点。",
    "вопрос и ответ",
    "émoji 🙂👩‍👩‍👧",
    "한국어 문장",
)
CODE = (
    "def f(x):\n    if x > {0}:\n        return [x ** i for i in range({0})]\n    return None\n",
    "SELECT name, COUNT(*) FROM t WHERE id = {0} GROUP BY name;\n",
    "for (let i = 0; i < {0}; i++) {{\n\tconsole.log(`${{i}}: ${{a[i]}}`);\n}}\n",
)
TOOLS = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Find the {what} of something.",
            "parameters": {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": f"what the {what} is wanted of"},
                    "limit": {"type": "integer"},
                },
                "required": ["query"],
            },
        },
    }
    for name, what in (("get_weather", "weather"), ("search_files", "place"), ("run", "output"))
)


def text(chance: random.Random, words: int) -> str:
    """Return prose, with a piece of code or another language now and then."""
    body = " ".join(chance.choices(WORDS, k=words))
    if chance.random() < 0.15:
        body = f"{chance.choice(FOREIGN)} {body}"
    if chance.random() < 0.25:
        code = chance.choice(CODE).format(chance.randint(1, 999))
        body += f"\n\n```\n{code}```\n"
    return body


def chat(chance: random.Random) -> Conversation:
    """Return one to three questions with answers, some with a system turn or with reasoning."""
    turns = [Turn("system", text(chance, 20))] if chance.random() < 0.3 else []
    reasoned = chance.random() < 0.3
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        turns.append(Turn("human", text(chance, chance.randint(8, 90))))
        thought = text(chance, 40) if reasoned else ""
        turns.append(Turn("gpt", text(chance, chance.randint(40, 320)), thought))
    return Conversation(tuple(turns))


def trajectory(chance: random.Random, steps: int, result_words: int = 60) -> Conversation:
    """Return one question that the target answers after several steps of calls."""
    turns = [Turn("human", text(chance, 40))]
    for step in range(steps):
        calls = tuple(
            ToolCall(
                f"call_{step}_{number}",
                chance.choice(TOOLS)["function"]["name"],
                json.dumps({"query": text(chance, 4), "limit": chance.randint(1, 9)}),
            )
            for number in range(chance.choice((1, 1, 2)))
        )
        turns.append(Turn("gpt", text(chance, 10) if chance.random() < 0.5 else "", "", calls))
        turns += [Turn("tool", text(chance, result_words), tool_call_id=call.id) for call in calls]
    turns.append(Turn("gpt", text(chance, 50)))
    return Conversation(tuple(turns), json.dumps(TOOLS))


def conversations(chance: random.Random, tools: float = 0.2) -> Iterator[Conversation]:
    """Yield chats, and a share of trajectories of a few steps."""
    while True:
        if chance.random() < tools:
            yield trajectory(chance, chance.randint(1, 4), 30)
        else:
            yield chat(chance)
