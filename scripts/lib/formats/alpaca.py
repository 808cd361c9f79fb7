"""Alpaca: an instruction and its output a row, with what came before where there is more."""

from collections.abc import Mapping
from typing import Any

from lib.cleaning import text_of
from lib.conversation import Conversation, Turn, rejecting
from lib.raw_shapes import instruction_turns, list_of


@rejecting
def convert(row: Mapping[str, Any]) -> Conversation:
    """Convert `{"instruction", "input", "output", "system", "history"}`.

    All but the instruction and the output may be missing or null. The input is part of the
    question; the history is a list of `[question, answer]` that were said before.
    """
    system = row.get("system")
    turns = [] if system is None else [Turn("system", text_of(system))]
    history = row.get("history")
    for pair in [] if history is None else list_of(history):
        question, answer = list_of(pair)
        turns += [Turn("human", text_of(question)), Turn("gpt", text_of(answer))]
    turns += instruction_turns(row["instruction"], row.get("input"), row["output"])
    return Conversation(tuple(turns))
