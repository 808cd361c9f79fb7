"""Clean conversations with tools, reasoning and results, for laws about how they are written."""

import json

from hypothesis import strategies as st

from lib.conversation import Conversation, ToolCall, Turn
from lib.tools import tool_list

TOOLS = tool_list([{"name": "find", "parameters": {"type": "object"}}, {"name": "add"}], [])

TEXTS = st.text('aB 1/\n"\\{}[]`<>é\u2028', min_size=1, max_size=12).filter(str.strip)
VALUES = st.one_of(TEXTS, st.integers(), st.none(), st.lists(st.booleans(), max_size=2))
ARGUMENTS = st.dictionaries(TEXTS, VALUES, max_size=2)
REASONING = st.one_of(st.just(""), TEXTS)


@st.composite
def conversations(draw):
    """Draw a conversation that is as clean as `clean` leaves it."""
    turns = draw(st.lists(TEXTS.map(lambda text: Turn("system", text)), max_size=1))
    calls = 0
    for _ in range(draw(st.integers(1, 3))):
        turns.append(Turn("human", draw(TEXTS)))
        for count in draw(st.lists(st.integers(1, 2), max_size=2)):
            made = [_call(draw, calls + n) for n in range(count)]
            calls += count
            text = draw(st.one_of(st.just(""), TEXTS))
            turns.append(Turn("gpt", text, draw(REASONING), tuple(made)))
            for answered in draw(st.permutations(made)):
                turns.append(Turn("tool", draw(TEXTS), tool_call_id=answered.id))
        turns.append(Turn("gpt", draw(TEXTS), draw(REASONING)))
    if draw(st.booleans()):
        turns.append(Turn("human", draw(TEXTS)))
    return Conversation(tuple(turns), tools=TOOLS if calls or draw(st.booleans()) else "")


def _call(draw, number):
    arguments = json.dumps(draw(ARGUMENTS), ensure_ascii=False)
    return ToolCall(f"call_{number}", draw(st.sampled_from(["find", "add"])), arguments)
