"""Public sets of evaluation prompts: what a row of each asks, and how the set usually asks it.

A row becomes a conversation that ends with its question alone; the rules of `lib/cleaning.py` hold
for it too. The instruction that goes with the questions of a set stands apart, because training
data may well hold it, but not the question.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lib.cleaning import text_of
from lib.conversation import Conversation, Rejected, Turn, rejecting
from lib.formats import prompts
from lib.raw_shapes import instruction_turns, list_of
from lib.tools import tool_list

_FINAL_ANSWER = r"Reason step by step, then write the final answer in \boxed{}."


@dataclass(frozen=True)
class PromptFormat:
    """How the rows of a set become prompts.

    Attributes:
        convert: from a raw row to a conversation that ends with its question.
        instruction: what follows each question after a blank line, "" for nothing; the usual
            prompt without examples, in words of our own.
    """

    convert: Callable[[Any], Conversation | Rejected]
    instruction: str = ""


def _column(*names: str) -> Callable[[Any], Conversation | Rejected]:
    """Take the question from the first of these columns that a row has."""

    @rejecting
    def convert(row: Mapping[str, Any]) -> Conversation:
        name = next((name for name in names if name in row), names[0])
        return _asking(text_of(row[name]))

    return convert


@rejecting
def _humaneval(row: Mapping[str, Any]) -> Conversation:
    """Ask for the rest of a function whose head is the `prompt`."""
    return _asking(_code_block(_not_blank(row["prompt"])))


@rejecting
def _livecodebench(row: Mapping[str, Any]) -> Conversation:
    """Ask `question_content`, with the `starter_code` if there is any; tests are not read."""
    question, start = _not_blank(row["question_content"]), row.get("starter_code")
    code = "" if start is None else text_of(start)
    return _asking(f"{question}\n\n{_code_block(code)}" if code.strip() else question)


@rejecting
def _mt_bench(row: Mapping[str, Any]) -> Conversation:
    """Ask the first question of `prompt` (`turns` in FastChat's own file).

    The second one refers to an answer, which would be another for each target.
    """
    questions = list_of(row["turns"] if "turns" in row else row["prompt"])
    return _asking(text_of(questions[0]), _left_out(questions))


@rejecting
def _alpaca(row: Mapping[str, Any]) -> Conversation:
    """Ask the `instruction` with its `input`; the `output` is not read."""
    question, _ = instruction_turns(row["instruction"], row.get("input"), "")
    return Conversation((question,))


@rejecting
def _bfcl(row: Mapping[str, Any]) -> Conversation:
    """Ask the first turn of `question`, a list of messages, and offer the tools of `function`."""
    turns = list_of(row["question"])
    asked = prompts.convert({"messages": turns[0]})
    if isinstance(asked, Rejected):
        raise asked
    repairs = list(_left_out(turns))
    tools = tool_list(list_of(row["function"]), repairs)
    return Conversation(asked.turns, tools=tools, repairs=tuple(repairs))


def _not_blank(value: Any) -> str:
    """Return text that says something; beside what stands around it, blank text is not noticed."""
    text = text_of(value)
    if not text.strip():
        raise Rejected("empty_turn", "human")
    return text


def _asking(question: str, repairs: tuple[str, ...] = ()) -> Conversation:
    return Conversation((Turn("human", question),), repairs=repairs)


def _left_out(questions: list[Any]) -> tuple[str, ...]:
    return ("later_questions_left_out",) if len(questions) > 1 else ()


def _code_block(code: str) -> str:
    trimmed = code.strip("\n")
    return f"```python\n{trimmed}\n```"


PROMPT_FORMATS: Mapping[str, PromptFormat] = {
    "gsm8k": PromptFormat(_column("question"), _FINAL_ANSWER),
    "math500": PromptFormat(_column("problem"), _FINAL_ANSWER),
    "aime": PromptFormat(_column("problem", "question"), _FINAL_ANSWER),
    "humaneval": PromptFormat(_humaneval, "Complete this Python function."),
    "mbpp": PromptFormat(_column("prompt", "text")),
    "livecodebench": PromptFormat(
        _livecodebench, "Solve this with a Python program and give it as one code block."
    ),
    "mt_bench": PromptFormat(_mt_bench),
    "alpaca": PromptFormat(_alpaca),
    "arena_hard": PromptFormat(_column("prompt")),
    "bfcl": PromptFormat(_bfcl),
    "prompts": PromptFormat(prompts.convert),
}
"""Every format of prompts by its name; `prompts` is the one for sets of one's own."""
