"""Tools, calls and results in the text of turns."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.tool_prompts import HERMES, PROMPTS, QWEN3, QWEN35

from lib.conversation import Rejected
from lib.tool_text import calls_in_answer, results_in_turn, text_without, tools_in_system

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather: sky, e.g. 'blue'. See <https://example.org>.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        },
    },
}
TIME = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}
TOOLS = json.dumps([WEATHER, TIME])

LISTS = {
    "a list": TOOLS,
    "an indented list": json.dumps([WEATHER, TIME], indent=2),
    "one a line": f"{json.dumps(WEATHER)}\n{json.dumps(TIME)}",
    "with commas": f"{json.dumps(WEATHER)},\n{json.dumps(TIME)}",
}


def reason_of(read, *arguments):
    with pytest.raises(Rejected) as caught:
        read(*arguments)
    return caught.value.reason


@pytest.mark.parametrize("listed", LISTS)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_prompt_of_nothing_but_tools_goes_whole(prompt, listed):
    repairs = []
    text = PROMPTS[prompt].format(LISTS[listed])
    for space in ("", "\n", " ", "\n\n  "):
        assert tools_in_system(space + text + space, repairs) == ("", [WEATHER, TIME])
    assert set(repairs) == {"boilerplate_system_removed"}


KEPT = [
    "You are a helpful assistant.",
    "Always answer in French.",
    'See https://example.org/a.b?c=d: version 2.5, e.g. "now", costs 3.50!',
    "# Tools\n\nHammers are made of steel.",
    "Here are the available tools: hammer, saw.",
    "Rules:\n  1. Be brief.\n\n  2. Do not guess…",
    "def f(x):\n    return x  # twice\n\n\nprint(f(1))",
    "{'title': 'Call'} <IMPORTANT>Be kind.</IMPORTANT> 日本語。",
    "Ask first. You may call one or more people.",
]


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_what_else_a_prompt_says_is_kept_to_the_character(prompt, kept):
    boilerplate = PROMPTS[prompt].format(TOOLS).rstrip("\n")
    definitions = [WEATHER, TIME]
    for between in ("", " ", "\n", "\n\n", " \n\n\n"):
        assert tools_in_system(f"{kept}{between}{boilerplate}", []) == (kept, definitions)
        assert tools_in_system(f"{boilerplate}{between}{kept}", []) == (kept, definitions)
        both = f"{kept}{between}{boilerplate}{between}{kept}"
        assert tools_in_system(both, []) == (f"{kept}\n\n{kept}", definitions)


WORDS = st.sampled_from(
    [
        *("You", "are", "tools", "function", "call", "For", "each", "XML", "Example:", "# Tools"),
        *("e.g.", "3.50", "http://a.b/c?d", "<b>", "é", "日", "`x=[1]`", "{", "}", "-"),
        *("\n", "\n\n", "    "),
    ]
)
SAID = st.lists(WORDS, min_size=1, max_size=12).map(" ".join).map(str.strip).filter(bool)


@given(SAID, st.sampled_from(sorted(PROMPTS)), st.sampled_from(["\n\n", "\n", " "]))
def test_any_words_around_the_boilerplate_are_kept_to_the_character(said, prompt, between):
    boilerplate = PROMPTS[prompt].format(TOOLS).rstrip("\n")
    assert tools_in_system(f"{said}{between}{boilerplate}", [])[0] == said
    assert tools_in_system(f"{boilerplate}{between}{said}", [])[0] == said


def test_words_between_two_instructions_are_kept():
    text = HERMES.format(TOOLS).replace("Don't make", "ALWAYS ask first. Don't make")
    assert tools_in_system(text, [])[0] == "ALWAYS ask first."


def test_the_indentation_of_a_kept_line_stays():
    assert tools_in_system(f"  a\n\n{QWEN3.format(TOOLS)}\n\n  b\n", [])[0] == "  a\n\n  b\n"


@pytest.mark.parametrize(
    "text",
    ["", "  Hi  ", "Answer with <b>tags</b>.", "You may call one or more functions.", "<schema>{}"],
)
def test_a_prompt_that_is_not_about_tools_stays_as_it_is(text):
    repairs = []
    assert tools_in_system(text, repairs) == (text, [])
    assert repairs == []


@pytest.mark.parametrize(
    "text",
    [
        HERMES.format('[{"type": "object", "properties": {}}}]'),
        HERMES.format("[{'type': 'function'}]"),
        HERMES.format("[" * 100_000),
        HERMES.format("[1] x"),
        f"<tools>\n{TOOLS}",
        f"<tools>\n{TOOLS[:-5]}</tools>",
    ],
)
def test_a_broken_list_in_a_prompt_is_rejected(text):
    assert reason_of(tools_in_system, text, []) == "invalid_tools"


@pytest.mark.parametrize(
    "text",
    [
        f"{HERMES.format(TOOLS)}\nAnswer within <tool_call></tool_call> tags only.",
        HERMES.format(TOOLS) + '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>',
        QWEN3.format(TOOLS).replace("return a json object", "give us a json object"),
        QWEN35.format(TOOLS).replace("- Required", "- Never ask twice\n- Required"),
        HERMES.format(TOOLS) + HERMES.format(TOOLS),
        HERMES.format("none"),
        "Use the tag <tools>.",
        "Results stand in <tool_response>.",
    ],
)
def test_a_prompt_that_would_be_half_cut_is_rejected(text):
    assert reason_of(tools_in_system, text, []) == "stray_tool_tag"


def test_known_instructions_without_a_list_go_too():
    text = "Be kind. You are provided with function signatures within <tools></tools> XML tags."
    assert tools_in_system(text, []) == ("Be kind.", [])


@given(st.text("ab \n\t", max_size=30), st.data())
def test_text_without_stretches_is_what_stands_around_them(text, data):
    ends = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=3)) * 2)
    stretches = list(zip(ends[::2], ends[1::2], strict=True))
    rest = text_without(text, stretches)
    assert rest.split() == " ".join(_outside(text, stretches)).split()
    assert text_without(text, []) in (text, "")


def _outside(text, stretches):
    at = 0
    for start, end in stretches:
        yield text[at:start]
        at = end
    yield text[at:]


def call(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def test_an_answer_without_calls_is_text():
    for text in ("", " Hi.\n", "<function=f> in `code`", "<think>\nHm.\n</think>\n\nHi."):
        assert calls_in_answer(text, TOOLS, []) == (text, [])


def test_calls_stand_at_the_end_of_an_answer():
    text = " I look.  \n\n" + call("get_weather", city="Zürich") + "\n" + call("get_time") + "\n\n"
    said, calls = calls_in_answer(text, TOOLS, [])
    assert said == " I look."
    assert [(each.name, each.arguments) for each in calls] == [
        ("get_weather", {"city": "Zürich"}),
        ("get_time", {}),
    ]


@pytest.mark.parametrize("form", ["```json\n{}\n```", "```\n{}```", "\n ```json {}\n```\n"])
def test_a_code_fence_around_a_call_is_taken_off(form):
    repairs = []
    fenced = form.replace("{}", '{"name": "get_time", "arguments": {"a": "```"}}')
    text = f"<tool_call>{fenced}</tool_call>\n{call('get_time')}"
    said, calls = calls_in_answer(text, TOOLS, repairs)
    assert (said, [each.arguments for each in calls]) == ("", [{"a": "```"}, {}])
    assert repairs == ["call_fence_removed"]


XML = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n</parameter>\n"
    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
)


def test_xml_calls_are_typed_by_the_schema():
    said, calls = calls_in_answer(f"I look.\n\n{XML}\n{XML}", TOOLS, [])
    assert said == "I look."
    assert [json.loads(each.arguments) for each in calls] == 2 * [{"city": "12", "days": 3}]


@pytest.mark.parametrize("one", [call("get_time"), XML])
def test_a_call_inside_the_reasoning_is_none(one):
    reasoning = f"<think>\nShould I write {one} or <tool_response>?\n</think>"
    assert calls_in_answer(f"{reasoning}\n\nHi.", TOOLS, []) == (f"{reasoning}\n\nHi.", [])
    said, calls = calls_in_answer(f"{reasoning}\n\n{one}", TOOLS, [])
    assert (said, len(calls)) == (reasoning, 1)
    said, calls = calls_in_answer(f"\n{reasoning}\nHm.\n{one}", TOOLS, [])
    assert (said, len(calls)) == (f"\n{reasoning}\nHm.", 1)


@pytest.mark.parametrize("rest", ["", " Hi.", f"\n\n{call('get_time')}"])
def test_an_unclosed_think_block_is_rejected(rest):
    assert reason_of(calls_in_answer, f"\n<think>\nHm.{rest}", TOOLS, []) == "stray_think_tag"


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>",
        "<tool_call>\n{}\n</tool_call>",
        '<tool_call>\n{"name": "get_time", "arguments": {}}',
        '<tool_call>\n{"name": "get_time", "arguments": {}\n</tool_call>',
        '<tool_call>\n{"name": "get_time", "arguments": {}}}\n</tool_call>',
        '<tool_call>\n{"name": "get_time"}\n</tool_call>',
        '<tool_call>\n{"arguments": {"name": "get_time"}}\n</tool_call>',
        '<tool_call>\n{"name": "get_time", "arguments": {}, "id": 1}\n</tool_call>',
        '<tool_call>\n{"name": "get_time", "arguments": {"a": 1, "a": 2}}\n</tool_call>',
        '<tool_call>\n[{"name": "get_time", "arguments": {}}]\n</tool_call>',
        '<tool_call>\\n{"arguments": {"a": [\'b\']}, "name": "get_time"}\\n</tool_call>',
        '<tool_call>```json\n{"name": "get_time", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "get_time", "arguments": {}}\n```</tool_call>',
        "<tool_call>" + "[" * 100_000,
        call("get_time") + "\nDone.",
        call("get_time") + "\nand\n" + call("get_time"),
        call("get_time") + "\n<tool_response>\n{}\n</tool_response>",
        XML + "\nDone.",
        XML + "\n" + call("get_time"),
        XML.replace("get_weather", "get_news"),
        XML.replace("</function>\n", ""),
    ],
)
def test_what_is_no_call_or_stands_after_one_is_rejected(text):
    assert reason_of(calls_in_answer, text, TOOLS, []) == "invalid_call"
    assert (
        reason_of(calls_in_answer, f"<think>\nHm.\n</think>\n\n{text}", TOOLS, []) == "invalid_call"
    )


@pytest.mark.parametrize(
    "text",
    ["Done.\n</tool_call>", "</tool_call>" + call("get_time"), "It says <tool_response>5"],
)
def test_a_tag_without_its_call_or_result_is_rejected(text):
    assert reason_of(calls_in_answer, text, TOOLS, []) == "stray_tool_tag"


WORD = st.text(max_size=5)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORD, inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(WORD, JSON_VALUES, max_size=3), min_size=1, max_size=3))
def test_written_calls_are_read_as_they_were(arguments):
    text = "Hm.\n\n" + "\n".join(call("get_time", **{"": each}) for each in arguments)
    said, calls = calls_in_answer(text, TOOLS, [])
    assert said == "Hm."
    assert [each.arguments for each in calls] == [{"": each} for each in arguments]


RESULT_TEXT = st.text("ab <>/\n{}\"'\t", max_size=20)


@given(st.lists(RESULT_TEXT, min_size=1, max_size=4), st.sampled_from(["", "\n", "\n\n"]))
def test_results_are_kept_to_the_character(results, between):
    wrapped = [f"<tool_response>\n{result}\n</tool_response>" for result in results]
    assert results_in_turn(between.join(wrapped) + between) == results


def test_results_need_no_line_breaks_around_them():
    text = "<tool_response>a</tool_response><tool_response></tool_response>"
    assert results_in_turn(text) == ["a", ""]


def test_a_turn_without_result_tags_has_no_results():
    for text in ("", "sunny", '{"sky": "blue"}', "<tool_call> is a tag"):
        assert results_in_turn(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "Result:\n<tool_response>\n5\n</tool_response>",
        "<tool_response>\n5\n</tool_response>\nThanks",
        "<tool_response>\n5",
        "5\n</tool_response>",
        "<tool_response>\n5\n</tool_response>\n<tool_response>\n6",
        "<tool_response>\na <tool_response> b\n</tool_response>",
    ],
)
def test_a_turn_with_more_than_results_is_rejected(text):
    assert reason_of(results_in_turn, text) == "stray_tool_tag"


FILLERS = [
    *(" ", "\n", "{", "[]", "```", "<tools>", "<tools>[", "<tools></tools>", "<think>"),
    *("<tool_call>", "<tool_response>", "# Tools ", "You are ", "Here are the available tools:"),
    "You are a function calling AI model. ",
    "<IMPORTANT> Reminder: ",
    "- Required parameters MUST be specified ",
    "Use the following pydantic model json schema for each tool call you will make: {FunctionCall",
]


@pytest.mark.parametrize("filler", FILLERS)
def test_long_texts_are_no_trap(filler):
    """A pattern that tries every way to divide a run of blanks would never end here."""
    long = filler * (100_000 // len(filler))
    texts = [long, f"a{long}b", f"{long}{HERMES.format(TOOLS)}{long}", f"<tools>[]{long}</tools>"]
    texts += [f"<tool_call>{long}", f"<tool_response>{long}", call("get_time") + long]
    for text in texts:
        for read in (
            lambda text: tools_in_system(text, []),
            lambda text: calls_in_answer(text, TOOLS, []),
            results_in_turn,
        ):
            try:
                read(text)
            except Rejected as rejected:
                assert len(rejected.detail) < 500
