"""ShareGPT rows, whose answers may be HTML."""

import pytest
from unit.formats.harness import accepted, reason, sample_oddities, texts

from lib.html_markdown import html_to_markdown


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


def test_sharegpt_samples_show_what_is_rejected_and_repaired():
    assert sample_oddities("sharegpt") == (
        {"no_conversation", "unknown_role"},
        {
            "html_to_markdown",
            "page_noise_removed",
            "leading_answer_cut",
            "neighbours_joined",
            "empty_turn_dropped",
        },
    )
