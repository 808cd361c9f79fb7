"""Answers from chat pages: pages become Markdown, everything else stays to the character."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.chat_page import answer_of_page

BOX = '<div class="markdown prose w-full break-words dark:prose-invert light">{}</div>'


def read(text):
    repairs = []
    return answer_of_page(text, repairs), set(repairs)


@pytest.mark.parametrize(
    "page",
    [
        BOX.format("<p>A</p>"),
        f'<div class="flex"><div>{BOX.format("<p>A</p>")}</div></div>',
        '<div class="markdown markdown-main-panel"><p>A</p></div>',
        "<p>A</p>",
        "<div>A</div>\n",
        "<p><svg><path d='M0 0'></path></svg>A</p>",
    ],
)
def test_a_page_becomes_markdown(page):
    assert read(page) == ("A", {"html_to_markdown"})


@pytest.mark.parametrize(
    ("page", "markdown"),
    [
        ('<ol start="2"><li>A</li></ol>', "2. A"),
        ("<p><a href='/x'>A</a> <code>B</code></p><h2>C</h2>", "[A](/x) `B`\n\n## C"),
        ("<blockquote><p>A<sup>1</sup></p></blockquote>", "> A<sup>1</sup>"),
        ("<table><tbody><tr><th>A</th></tr></tbody></table>", "| A |\n| --- |"),
    ],
)
def test_blocks_without_their_box_are_a_page(page, markdown):
    assert read(page) == (markdown, {"html_to_markdown"})


@pytest.mark.parametrize(
    "answer",
    [
        "Use `<div>` and `<p>`.",
        "a < b and a > c, <b>",
        'Write this:\n\n```html\n<div class="markdown prose">\n<p>Hi</p>\n</div>\n```',
        'Put it in <div class="markdown prose"><p>Hi</p></div>',
        "<p> is a paragraph and <div> is a box.",
        "<div> is a box, and so is <p>",
        "<b>Bold</b> text in <p>a paragraph</p>",
        '<div class="card"><p>Hi</p></div>',
        "<form><p>Name</p></form>",
        "<p>Name</p>\n<form><input></form>\n<p>Done</p>",
        "<P>A</P>",
        "<!DOCTYPE html>\n<html><body><p>Hi</p></body></html>",
        "<ul>\n  <li>one</li>\n</ul>\n\nThis list has one item.",
        "1 / 2 is a half",
        "1 / 2",
        "1 / 2\n\nHalf of it.",
        "3 / 2Pi is more than one.",
        "1 / 2x is a term.",
        "1 / 2 <b> 3",
        "Copy code from the page.",
        "```\nx\n```\nCopy code from above.",
        "```\nCopy code to the clipboard\n```",
        "The button says Copy12 chars / 3 words and more.",
        "12 chars / 3 words",
        " padded \n",
        "",
    ],
)
def test_what_is_no_page_stays_to_the_character(answer):
    assert read(answer) == (answer, set())


@pytest.mark.parametrize(
    ("page", "answer"),
    [
        ("2 / 3<p>1 / 2 is a half</p>", "1 / 2 is a half"),
        (f"1 / 1\n\n{BOX.format('<p>A</p>')}", "A"),
        (f"{BOX.format('<p>A</p>')}Copy12 chars / 3 words", "A"),
        (
            f"<div>{BOX.format('<p>A</p>')}<div><button>Copy</button>9 chars / 1 words</div></div>",
            "A",
        ),
        (BOX.format("<p>A</p><div>Copy 9 chars / 1 words</div>"), "A"),
    ],
)
def test_counters_of_a_page_go(page, answer):
    assert read(page) == (answer, {"html_to_markdown", "page_noise_removed"})


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("2 / 3Sure, here it is.", "Sure, here it is."),
        ("1 / 1I'm sorry.", "I'm sorry."),
        ("Done.\nCopy123 chars / 45 words\n", "Done."),
        ("```pythonCopy codex = 1\n```", "```python\nx = 1\n```"),
        ("A\n\n```\npythonCopy codex = 1```\nB", "A\n\n```python\nx = 1\n```\nB"),
        ("```\nCopy codex = 1\n```", "```\nx = 1\n```"),
        ("```\nCopy code\n```", "```\n\n```"),
        ("```python\nCopy code\n  x\n```", "```python\n  x\n```"),
        ("  ````c++Copy codeCopy code```\n````", "  ````c++\n```\n````"),
        ("```jsCopy codea", "```js\na\n"),
        (
            "```\na\n```\n\n```bashCopy codels\n```\n\n```\nb\n```",
            "```\na\n```\n\n```bash\nls\n```\n\n```\nb\n```",
        ),
    ],
)
def test_noise_in_markdown_goes(text, answer):
    assert read(text) == (answer, {"page_noise_removed"})


PIECES = [
    "1 / 2",
    "<p>",
    "</p>",
    "<b>",
    "A",
    "a ",
    "\n",
    "`",
    "```",
    "Copy",
    "Copy code",
    "12",
    " ",
]
PIECES += [" chars / 3 words", '<div class="markdown">', "</div>", "python", "I ", "<form>"]


@settings(max_examples=200, derandomize=True, deadline=None)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=9))
def test_text_changes_only_with_a_repair(pieces):
    text = "".join(pieces)
    try:
        answer, repairs = read(text)
    except ValueError:
        assert "<" in text
        return
    if "html_to_markdown" in repairs:
        assert text.lstrip(" \n/0123456789").startswith("<")
    else:
        assert (answer == text) == (not repairs)
        assert len(answer) <= len(text) + 2


@pytest.mark.parametrize("piece", PIECES)
def test_time_grows_with_the_answer_alone(piece):
    begin = time.process_time()
    try:
        read(piece * 20_000)
    except ValueError as refused:
        assert "nested" in str(refused)
    assert time.process_time() - begin < 2
