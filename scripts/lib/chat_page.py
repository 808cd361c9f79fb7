"""Answers that were scraped from a chat page: its HTML becomes Markdown, its buttons go.

The marks are those that https://github.com/lm-sys/FastChat/blob/main/fastchat/data/clean_sharegpt.py
takes out of ShareGPT's pages. An answer that was written as Markdown stays to the character, also
where it shows HTML.
"""

import re

from lib.html_markdown import PAGE_TAGS, html_to_markdown

_COUNTER = re.compile(r"\s*\d{1,3} / \d{1,3}\s*")
_COUNTER_AT_WORD = re.compile(r"\s*(\d{1,3}) / (\d{1,3})(?=[A-Z][a-z]+[ ,.!'’]|I[ '’])")
_SIZE = re.compile(r"Copy\d{1,7} chars / \d{1,7} words\Z")
_SIZE_AFTER_BUTTON = re.compile(r"(?:\A|\n\n|Copy\s?)\d{1,7} chars / \d{1,7} words\Z")
_CODE_BLOCK = re.compile(r"^([ \t]*(`{3,}))(.*?)(\2|\Z)", re.DOTALL | re.MULTILINE)
_CODE_LABEL = re.compile(r"\s*([A-Za-z0-9+#.\-]{0,20}?)\n?(?:Copy code)+(?! )\n?")

_BLOCK = r"(?:div|p|pre|ul|ol|table|blockquote|h[1-6])"
_BARE_BLOCK = re.compile(rf'<{_BLOCK}>|<ol start="\d+">')
_BLOCK_END = re.compile(rf"</{_BLOCK}>\Z")
_TAG = re.compile(r"</?([A-Za-z][A-Za-z0-9-]*)")
_MARKDOWN_BOX = re.compile(r'<div class="markdown[ "]')


def answer_of_page(text: str, repairs: list[str]) -> str:
    """Return the Markdown of an answer that is a piece of a chat page, any other as it is.

    Args:
        text: the answer.
        repairs: gets the names of what was mended.

    Raises:
        ValueError: the page cannot be read.
    """
    counter = _COUNTER.match(text)
    html = _without_size(text[counter.end() if counter else 0 :], _SIZE).strip()
    if not _is_page(html):
        answer = _without_labels(_without_counter(_without_size(text, _SIZE)))
        if answer != text:
            repairs.append("page_noise_removed")
        return answer
    markdown = html_to_markdown(html)
    answer = _without_size(markdown, _SIZE_AFTER_BUTTON)
    repairs.append("html_to_markdown")
    if answer != markdown or html != text.strip():
        repairs.append("page_noise_removed")
    return answer


def _is_page(text: str) -> bool:
    """Tell a piece of a page from an answer that shows HTML, or that is other HTML.

    It begins with the box that pages put around Markdown; or it ends with a block, and begins with
    any tag and has such a box inside, or with a bare block and has no tags but those of Markdown.
    """
    if _MARKDOWN_BOX.match(text):
        return True
    if not _BLOCK_END.search(text, text.rfind("<")):
        return False
    if _BARE_BLOCK.match(text):
        return PAGE_TAGS.issuperset(_TAG.findall(text))
    return bool(_TAG.match(text) and _MARKDOWN_BOX.search(text))


def _without_size(text: str, size: re.Pattern[str]) -> str:
    """Take off the number of characters and words that a page shows below an answer."""
    found = size.search(text.rstrip())
    return text[: found.start()].rstrip() if found else text


def _without_counter(text: str) -> str:
    """Take off `2 / 3`, which answer of several this is, where a word follows without a gap."""
    found = _COUNTER_AT_WORD.match(text)
    return text[found.end() :] if found and int(found[1]) <= int(found[2]) else text


def _without_labels(text: str) -> str:
    """Take the button out of code blocks, which stands between the language and the code."""
    return _CODE_BLOCK.sub(_without_label, text) if "Copy code" in text else text


def _without_label(block: re.Match[str]) -> str:
    start, _, code, end = block.groups()
    label = _CODE_LABEL.match(code)
    if not label:
        return block[0]
    code = code[label.end() :]
    return f"{start}{label[1]}\n{code}" + ("" if code.endswith("\n") else "\n") + end
