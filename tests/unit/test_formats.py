"""What each raw format means: every documented oddity is repaired or rejected by name."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.cleaning import REPAIRS, clean
from lib.conversation import REASONS, Conversation, Rejected, from_record, to_record
from lib.formats import converter, format_names
from lib.html_markdown import html_to_markdown
from lib.jsonl import jsonl_writer, read_jsonl
from lib.normalizing import NormalizeSettings, normalize_source
from lib.readers import read_rows

SAMPLES = {
    path.stem: list(read_rows(path))
    for path in sorted(Path(__file__).parents[2].joinpath("resources/samples").iterdir())
}


def outcome(format_name, row):
    converted = converter(format_name)(row)
    if isinstance(converted, Rejected):
        return converted
    try:
        return clean(converted)
    except Rejected as rejected:
        return rejected


def accepted(format_name, row):
    found = outcome(format_name, row)
    assert isinstance(found, Conversation), found
    return found


def texts(conversation):
    return [(turn.role, turn.text) for turn in conversation.turns]


def reason(format_name, row):
    found = outcome(format_name, row)
    assert isinstance(found, Rejected), found
    return found.reason


def test_every_format_has_samples_in_its_true_shape():
    assert format_names() == sorted(SAMPLES)
    for name, rows in SAMPLES.items():
        good = [row for row in rows if isinstance(outcome(name, row), Conversation)]
        assert len(good) > len(rows) * 0.9


def test_an_unknown_format_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'alpaca'.*codealpaca.*ultrachat"):
        converter("alpaca")


# CodeAlpaca


def test_codealpaca_joins_the_input_with_a_blank_line():
    row = {"instruction": "Reverse the word.", "input": "yellow", "output": "wolley"}
    assert texts(accepted("codealpaca", row)) == [
        ("human", "Reverse the word.\n\nyellow"),
        ("gpt", "wolley"),
    ]


@pytest.mark.parametrize("given", ["", " \n", None])
def test_codealpaca_ignores_an_input_of_white_space(given):
    row = {"instruction": "Say hi.", "output": "hi"}
    row |= {} if given is None else {"input": given}
    assert texts(accepted("codealpaca", row)) == [("human", "Say hi."), ("gpt", "hi")]


def test_codealpaca_rows_that_differ_in_the_input_have_different_identities():
    rows = [{"instruction": "Reverse.", "input": word, "output": "x"} for word in ("a", "b")]
    first, second = (accepted("codealpaca", row).of_source("s").id for row in rows)
    assert first != second


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"output": ""}, "empty_turn"),
        ({"output": None}, "malformed_row"),
        ({"input": 3}, "malformed_row"),
        ({"instruction": ["a"]}, "malformed_row"),
    ],
)
def test_codealpaca_rejects_what_is_no_text(change, expected):
    row = {"instruction": "Say hi.", "input": "", "output": "hi"}
    assert reason("codealpaca", {**row, **change}) == expected
    assert reason("codealpaca", {key: row[key] for key in ("instruction", "input")}) == (
        "malformed_row"
    )


# OpenOrca


ORCA = {"id": "cot.1", "system_prompt": "Be brief.", "question": "2 + 2?", "response": "4"}


def test_openorca_has_three_turns():
    assert texts(accepted("openorca", ORCA)) == [
        ("system", "Be brief."),
        ("human", "2 + 2?"),
        ("gpt", "4"),
    ]


def test_openorca_drops_an_empty_system():
    conversation = accepted("openorca", {**ORCA, "system_prompt": ""})
    assert texts(conversation) == [("human", "2 + 2?"), ("gpt", "4")]
    assert conversation.repairs == ("empty_system_dropped",)


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (None, "malformed_row"),
        ("", "empty_turn"),
        (" ", "empty_turn"),
        ("4<|im_end|>", "control_token"),
    ],
)
def test_openorca_rejects_a_missing_answer_and_a_control_token(response, expected):
    assert reason("openorca", {**ORCA, "response": response}) == expected


# UltraChat


def test_ultrachat_takes_the_messages_and_not_the_prompt():
    row = {
        "prompt": "another text",
        "prompt_id": "0",
        "messages": [{"role": "User", "content": " Hi"}, {"role": "assistant", "content": "Hello"}],
    }
    assert texts(accepted("ultrachat", row)) == [("human", " Hi"), ("gpt", "Hello")]
    assert reason("ultrachat", {**row, "messages": []}) == "no_conversation"
    assert reason("ultrachat", {**row, "messages": None}) == "malformed_row"


# ShareGPT


def sharegpt(*turns):
    return {"id": "a", "conversations": [{"from": role, "value": text} for role, text in turns]}


def answer(html):
    return accepted("sharegpt", sharegpt(("human", "?"), ("gpt", html))).turns[1].text


PAGE = (
    '<pre><div class="bg-black"><div><span>{label}</span><button>Copy code</button></div>'
    "<div><code>{code}</code></div></div></pre>"
)


def test_sharegpt_code_keeps_language_and_text_and_loses_the_button():
    code = "def f(x):\n    return [i for i in x if i < 3]\n\n\n\ndef g():\n\tpass  "
    html = PAGE.format(label="python", code=code.replace("<", "&lt;") + "\n")
    assert answer(f"<p>Look:</p>{html}<p>Done.</p>") == f"Look:\n\n```python\n{code}\n```\n\nDone."


@pytest.mark.parametrize("label", ["", "pythonCopy code", "c++", "a label of many words"])
def test_sharegpt_code_labels(label):
    language = {"pythonCopy code": "python", "c++": "c++"}.get(label, "")
    assert answer(PAGE.format(label=label, code="x")) == f"```{language}\nx\n```"


def test_sharegpt_code_that_holds_a_fence_gets_a_longer_one():
    text = answer("<pre><code>```python\nx\n```\n</code></pre>")
    assert text == "````\n```python\nx\n```\n````"


@pytest.mark.parametrize(
    ("html", "markdown"),
    [
        ("<p>Call <code>a_b*c</code> &amp; go.</p>", "Call `a_b*c` & go."),
        ("<p>A</p><p>B</p>", "A\n\nB"),
        ("<ul><li>one</li><li>two</li></ul>", "- one\n- two"),
        ("<ol><li>one</li><li>two</li></ol>", "1. one\n2. two"),
        ("<h2>Title</h2><p><strong>b</strong> <em>i</em></p>", "## Title\n\n**b** *i*"),
        (
            "<table><thead><tr><th>A</th><th>B</th></tr></thead>"
            "<tbody><tr><td>1</td><td>2</td></tr></tbody></table>",
            "| A | B |\n| --- | --- |\n| 1 | 2 |",
        ),
        ("<p>2 * 3 = 6 and a_b_c</p>", "2 * 3 = 6 and a_b_c"),
    ],
)
def test_sharegpt_html_becomes_markdown(html, markdown):
    wrapped = f'<div class="markdown prose w-full break-words">{html}</div>'
    assert answer(html) == answer(wrapped) == html_to_markdown(html) == markdown


def test_sharegpt_html_is_counted_as_a_repair():
    row = sharegpt(("human", "?"), ("gpt", "<p>A</p>"))
    assert accepted("sharegpt", row).repairs == ("html_to_markdown",)
    plain = sharegpt(("human", "?"), ("gpt", "a < b and a > c, <b>"))
    assert accepted("sharegpt", plain).repairs == ()
    assert accepted("sharegpt", plain).turns[1].text == "a < b and a > c, <b>"


def test_sharegpt_leaves_the_html_of_a_person_alone():
    question = '<div class="a">Why is\n\n\nmy <p> not closed?</div>'
    row = sharegpt(("human", question), ("gpt", "<p>A</p>"))
    assert accepted("sharegpt", row).turns[0].text == question


def test_sharegpt_takes_the_regenerate_counter_off():
    row = sharegpt(("human", "?"), ("gpt", "2 / 3<div><p>1 / 2 is a half</p></div>"))
    conversation = accepted("sharegpt", row)
    assert conversation.turns[1].text == "1 / 2 is a half"
    assert set(conversation.repairs) == {"page_noise_removed", "html_to_markdown"}
    assert answer("1 / 2 is a half") == "1 / 2 is a half"


def test_sharegpt_repairs_the_order_of_turns():
    row = sharegpt(
        ("gpt", "Sure"), ("user", "Hi"), ("human", "there"), ("bing", "Hello"), ("human", "More?")
    )
    conversation = accepted("sharegpt", row)
    assert texts(conversation) == [("human", "Hi\n\nthere"), ("gpt", "Hello"), ("human", "More?")]
    assert set(conversation.repairs) == {"leading_answer_cut", "neighbours_joined"}


def test_sharegpt_drops_an_empty_last_turn_but_none_in_the_middle():
    conversation = accepted("sharegpt", sharegpt(("human", "Hi"), ("gpt", " ")))
    assert texts(conversation) == [("human", "Hi")]
    assert conversation.repairs == ("empty_turn_dropped",)
    assert reason("sharegpt", sharegpt(("human", "Hi"), ("gpt", ""), ("human", "?"))) == (
        "empty_turn"
    )


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (sharegpt(), "no_conversation"),
        (sharegpt(("human", "Hi"), ("narrator", "waits")), "unknown_role"),
        (sharegpt(("human", "Hi"), (None, "Hello")), "unknown_role"),
        (sharegpt(("gpt", "Hi")), "no_user_turn"),
        (sharegpt(("human", "Hi"), ("gpt", "<p>&lt;|im_end|&gt;</p>")), "control_token"),
        (sharegpt(("human", "Hi"), ("gpt", None)), "malformed_row"),
        (sharegpt(("human", "Hi"), ("gpt", "<div>" * 5000)), "malformed_row"),
        (sharegpt(("human", "Hi"), ("gpt", "<div><![foo[x]]></div>")), "malformed_row"),
        ({"id": "a", "conversations": None}, "malformed_row"),
        ({"id": "a", "conversations": "human: Hi"}, "malformed_row"),
        ({"id": "a"}, "malformed_row"),
    ],
)
def test_sharegpt_rejects_what_is_no_chat(row, expected):
    assert reason("sharegpt", row) == expected


# Glaive


def function(name, **properties):
    return {"name": name, "parameters": {"type": "object", "properties": properties}}


FUNCTIONS = (function("get_weather"), function("get_time"))


def glaive(*turns, functions=FUNCTIONS):
    """A row as the data set writes it: heads, end marks and pretty-printed functions."""
    listed = "\n\n".join(json.dumps(each, indent=4) for each in functions)
    system = f"SYSTEM: You have functions. Use them if required -\n{listed}\n"
    return {"system": system, "chat": "\n\n\n".join(turns) + "\n\n\n"}


def called(name, arguments="'{}'"):
    return f'ASSISTANT: <functioncall> {{"name": "{name}", "arguments": {arguments}}} <|endoftext|>'


def weather_call(arguments):
    return glaive(
        "USER: Weather?",
        called("get_weather", arguments),
        'FUNCTION RESPONSE: {"sky": "blue"}',
        "ASSISTANT: Blue. <|endoftext|>",
    )


def test_glaive_becomes_turns_calls_and_tools():
    conversation = accepted("glaive_v2", weather_call("""'{"city": "Graz"}'"""))
    question, call, result, last = conversation.turns
    assert (question.role, question.text) == ("human", "Weather?")
    assert (call.role, call.text) == ("gpt", "")
    assert call.tool_calls[0].name == "get_weather"
    assert call.tool_calls[0].arguments == '{"city": "Graz"}'
    assert (result.role, result.text) == ("tool", '{"sky": "blue"}')
    assert result.tool_call_id == call.tool_calls[0].id
    assert (last.role, last.text) == ("gpt", "Blue.")
    offered = [tool["function"] for tool in json.loads(conversation.tools)]
    assert offered == list(FUNCTIONS)
    assert set(conversation.repairs) == {"boilerplate_system_removed", "end_mark_removed"}


def test_glaive_without_functions_is_a_plain_chat():
    row = {
        "system": "SYSTEM: You are a helpful assistant, with no access to external functions.\n\n",
        "chat": "USER: Hi\nthere\n\nASSISTANT: Hello <|endoftext|>\n\nUSER: Bye",
    }
    conversation = accepted("glaive_v2", row)
    assert texts(conversation) == [("human", "Hi\nthere"), ("gpt", "Hello"), ("human", "Bye")]
    assert conversation.tools == ""


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ("""'{"message": "Hey, let's meet"}'""", {"message": "Hey, let's meet"}),
        ("""'{"message": "let\\'s meet"}'""", {"message": "let's meet"}),
        ("""'{\n  "city": "Graz",\n  "n": 1\n}'""", {"city": "Graz", "n": 1}),
        ("""{"city": "Graz"}""", {"city": "Graz"}),
        ("'{}'", {}),
    ],
)
def test_glaive_arguments_that_are_an_object_are_read(arguments, value):
    call = accepted("glaive_v2", weather_call(arguments)).turns[1].tool_calls[0]
    assert json.loads(call.arguments) == value


@pytest.mark.parametrize(
    "arguments",
    [
        """'["Graz"]'""",
        '["Graz"]',
        "null",
        "'null'",
        "'[User provided data]'",
        """'{"n": Infinity}'""",
        """'{"city": "Graz"}'}""",
        "",
        "'" + "[" * 100_000 + "'",
    ],
)
def test_glaive_arguments_that_are_no_object_are_rejected(arguments):
    assert reason("glaive_v2", weather_call(arguments)) in ("invalid_call", "malformed_row")


def test_glaive_keeps_the_text_before_a_call():
    with_text = called("get_weather").replace("<functioncall>", "I will look. <functioncall>")
    call = accepted("glaive_v2", glaive("USER: Weather?", with_text)).turns[1]
    assert (call.text, len(call.tool_calls)) == ("I will look.", 1)


def test_glaive_calls_are_told_apart_and_answered_in_order():
    row = glaive(
        "USER: Weather and time?",
        called("get_weather"),
        "FUNCTION RESPONSE: blue",
        called("get_time"),
        "FUNCTION RESPONSE: noon",
        "ASSISTANT: Blue at noon. <|endoftext|>",
    )
    turns = accepted("glaive_v2", row).turns
    ids = [turn.tool_calls[0].id for turn in turns if turn.tool_calls]
    assert len(set(ids)) == 2
    assert [turn.tool_call_id for turn in turns if turn.role == "tool"] == ids


WITHOUT_FAITHFUL_FORM = {
    "a cut call": (["USER: Weather?", called("get_weather").replace("}'}", "")], "invalid_call"),
    "another key for the arguments": (
        ["USER: Weather?", called("get_weather").replace("arguments", "parameters")],
        "invalid_call",
    ),
    "a foreign call": (
        ["USER: Weather?", 'ASSISTANT: AI to= get_weather: {"city": "Graz"}'],
        "invalid_call",
    ),
    "an undeclared call": (["USER: Weather?", called("get_news")], "undeclared_tool"),
    "a response without a call": (
        ["USER: Weather?", "FUNCTION RESPONSE: blue", "ASSISTANT: Blue."],
        "unmatched_result",
    ),
    "a response after plain text": (
        ["USER: Weather?", "ASSISTANT: One moment.", "FUNCTION RESPONSE: blue"],
        "unmatched_result",
    ),
    "an empty question": (["USER: ", "ASSISTANT: Hello <|endoftext|>"], "empty_turn"),
    "an empty answer": (["USER: Hi", "ASSISTANT:  <|endoftext|>"], "empty_turn"),
    "a mark in a question": (["USER: Open<|endoftext|>", "ASSISTANT: Hello"], "control_token"),
    "a mark in an answer": (
        ["USER: Hi", "ASSISTANT: Open<|endoftext|>AI <|endoftext|>"],
        "control_token",
    ),
    "no head": (["Hello"], "malformed_row"),
    "text before the first head": (["Hello", "USER: Hi"], "malformed_row"),
}


@pytest.mark.parametrize("oddity", WITHOUT_FAITHFUL_FORM)
def test_glaive_rejects_what_has_no_faithful_form(oddity):
    turns, expected = WITHOUT_FAITHFUL_FORM[oddity]
    assert reason("glaive_v2", glaive(*turns)) == expected


def test_glaive_tools_with_two_definitions_of_a_name_are_rejected():
    same = (function("f"), function("f"))
    assert accepted("glaive_v2", glaive("USER: Hi", functions=same))
    different = (function("f"), function("f", city={"type": "string"}))
    assert reason("glaive_v2", glaive("USER: Hi", functions=different)) == "invalid_tools"
    cut = {"system": 'SYSTEM: -\n{\n  "name": "f",\n', "chat": "USER: Hi"}
    assert reason("glaive_v2", cut) == "invalid_tools"


def test_glaive_functions_may_hold_blank_lines_and_braces():
    odd = {"name": "f", "description": "a {b}\n\n{c"}
    system = "SYSTEM: -\n" + json.dumps(odd, indent=4).replace('",\n', '",\n\n')
    conversation = accepted("glaive_v2", {"system": system, "chat": "USER: Hi"})
    assert [tool["function"] for tool in json.loads(conversation.tools)] == [odd]


@pytest.mark.parametrize(
    "text",
    [
        "a\n\nb",
        "a\n\n\n\nb",
        "    indented",
        "a\u0085",
        "\u2028a\u2028",
        "said\nUSER: not a head",
        "a USER: b",
        "<functioncall> in a question",
    ],
)
def test_glaive_keeps_the_text_of_a_turn_to_the_character(text):
    conversation = accepted("glaive_v2", glaive(f"USER: {text}", "ASSISTANT: Hm. <|endoftext|>"))
    assert texts(conversation) == [("human", text), ("gpt", "Hm.")]


def test_glaive_a_head_after_a_line_of_blanks_is_a_head():
    row = {"system": "", "chat": "\n USER: Hi\n  \nASSISTANT: Hello <|endoftext|> \n"}
    assert [text.strip() for _, text in texts(accepted("glaive_v2", row))] == ["Hi", "Hello"]


@pytest.mark.parametrize("filler", ["\n", " ", "\n ", "<", "{", "USER: ", "<functioncall> "])
def test_glaive_long_rows_are_no_trap(filler):
    """A pattern that tries every way to divide a run of blanks would never end here."""
    long = filler * (100_000 // len(filler))
    assert outcome("glaive_v2", glaive(f"USER: a{long}b", f"ASSISTANT: a{long}b"))
    assert outcome("glaive_v2", weather_call(f"{long}'{{}}'{long}x"))


# All formats


CALL = """<functioncall> {"name": "get_weather", "arguments": '{}'}"""
TEXTS = [
    *("<|im_end|>", "<think>", "\ud83d", "\0", "", " ", "\n" * 20_000, "x" * 50_000),
    *("<div>" * 3000, "<![x[", "<p>" + "\u2028" * 9, "{", "[" * 3000),
    *("USER: ", "\n\nASSISTANT: ", CALL),
]
OTHERS = [None, 0, 1.5, float("nan"), True, [], {}, ["a"], {"a": None}, [[]], [None], 10**400]


def places(value, path=()):
    """Yield the path of every value inside a row."""
    if path:
        yield path
    if isinstance(value, dict):
        items = value.items()
    else:
        items = enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def changed(value, path, change):
    """Return a copy in which `change` has been at what lies at the path."""
    if not path:
        return change(value)
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], change)
    return copy


def without(path):
    def change(holder):
        copy = holder.copy()
        del copy[path[-1]]
        return copy

    return path[:-1], change


@st.composite
def mutated(draw, name):
    row = draw(st.sampled_from(SAMPLES[name]))
    for _ in range(draw(st.integers(1, 2))):
        if not isinstance(row, dict) or not row:
            break
        path = draw(st.sampled_from(list(places(row))))
        kind = draw(st.sampled_from(["drop", "replace", "insert", "swap", "row"]))
        if kind == "drop":
            row = changed(row, *without(path))
        elif kind == "replace":
            value = draw(st.sampled_from([*TEXTS, *OTHERS]))
            row = changed(row, path, lambda _, value=value: value)
        elif kind == "insert":
            text = draw(st.sampled_from(TEXTS))
            at = draw(st.floats(0, 1))
            row = changed(row, path, lambda old, text=text, at=at: inserted(old, text, at))
        elif kind == "swap":
            row = changed(row, path, lambda old: old[::-1] if isinstance(old, list) else old)
        elif draw(st.integers(0, 9)) == 0:
            row = draw(st.sampled_from(OTHERS))
    return row


def inserted(old, text, at):
    if not isinstance(old, str):
        return text
    place = int(at * len(old))
    return old[:place] + text + old[place:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("mutated")


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_every_mutated_row_is_written_or_rejected_with_a_reason(folder, name):
    seen = Counter()

    @settings(max_examples=40, derandomize=True, deadline=None)
    @given(rows=st.lists(mutated(name), min_size=8, max_size=16))
    def check(rows):
        raw = folder / f"{name}.jsonl"
        raw.write_text("".join(json.dumps(row) + "\n" for row in rows))
        kept, lost = folder / f"{name}.kept.jsonl", folder / f"{name}.lost.jsonl"
        stats = normalize_source(
            NormalizeSettings(name=name, format=name, max_reject_rate=1.0),
            [raw],
            kept,
            lost,
            folder / "stats.json",
            lambda _: None,
        )
        records, rejects = list(read_jsonl(kept)), list(read_jsonl(lost))
        assert len(rows) == len(records) + len(rejects)
        assert stats["rows_in"] == stats["rows_written"] + stats["rows_rejected"] == len(rows)
        assert {entry["reason"] for entry in rejects} <= set(REASONS)
        assert set(stats["repaired"]) <= set(REPAIRS)
        rows_lost = [entry["row"] for entry in rejects]
        assert rows_lost == sorted(set(rows_lost))
        for record in records:
            conversation = from_record(record)
            assert to_record(conversation) == record
            assert clean(conversation).turns == conversation.turns
        seen.update(written=len(records), rejected=len(rejects))

    check()
    assert min(seen["written"], seen["rejected"]) > 10, "the mutations must hit both outcomes"


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_sample_records_survive_the_way_to_the_disk_and_back(folder, name):
    conversations = [
        found.of_source(name)
        for row in SAMPLES[name]
        if isinstance(found := outcome(name, row), Conversation)
    ]
    path = folder / f"{name}.records.jsonl"
    with jsonl_writer(path) as writer:
        for conversation in conversations:
            writer.write(to_record(conversation))
    for before, after in zip(conversations, map(from_record, read_jsonl(path)), strict=True):
        assert (after.turns, after.tools, after.id) == (before.turns, before.tools, before.id)
        assert after.of_source(name).id == before.id


@pytest.mark.parametrize(
    ("name", "reasons", "repairs"),
    [
        ("codealpaca", {"empty_turn", "malformed_row"}, {"surrogate_replaced"}),
        (
            "glaive_v2",
            {"empty_turn", "invalid_call", "undeclared_tool", "unmatched_result"},
            {"boilerplate_system_removed", "end_mark_removed"},
        ),
        (
            "openorca",
            {"control_token", "empty_turn", "malformed_row"},
            {"empty_system_dropped", "nul_replaced"},
        ),
        (
            "sharegpt",
            {"no_conversation", "unknown_role"},
            {
                "html_to_markdown",
                "page_noise_removed",
                "leading_answer_cut",
                "neighbours_joined",
                "empty_turn_dropped",
            },
        ),
        ("ultrachat", set(), set()),
    ],
)
def test_the_oddities_of_the_samples_are_named(name, reasons, repairs):
    found = [outcome(name, row) for row in SAMPLES[name]]
    assert {each.reason for each in found if isinstance(each, Rejected)} == reasons
    assert {r for each in found if isinstance(each, Conversation) for r in each.repairs} == repairs
