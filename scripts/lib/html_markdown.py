"""HTML of a chat page to the Markdown that the assistant had written."""

import re

from bs4 import BeautifulSoup, Tag
from markdownify import MarkdownConverter

_LANGUAGE = re.compile(r"[A-Za-z0-9+#.\-]{0,20}")


class _Converter(MarkdownConverter):
    """Markdownify with the fences that chat models write."""

    def convert_pre(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        code = el.find("code")
        language = str(el.get("data-language", ""))
        body = (code if code is not None else el).get_text()
        return f"\n\n```{language}\n{body.rstrip()}\n```\n\n"


def html_to_markdown(html: str) -> str:
    """Convert the HTML of one answer.

    Code keeps its text to the character, the language of a code block moves to its fence, and
    the page's buttons ("Copy code") go.
    """
    soup = BeautifulSoup(html, "html.parser")
    for block in soup.find_all("pre"):
        _lift_language(block)
    for button in soup.find_all(["button", "svg", "script", "style"]):
        button.decompose()
    converter = _Converter(
        heading_style="atx",
        bullets="-",
        escape_misc=False,
        escape_asterisks=False,
        escape_underscores=False,
    )
    markdown = converter.convert_soup(soup)
    return re.sub(r"\n{3,}", "\n\n", markdown).strip()


def _lift_language(block: Tag) -> None:
    """Note on a `<pre>` the language that the page shows above its code."""
    code = block.find("code")
    if code is None:
        return
    code.extract()
    label = block.get_text(" ").replace("Copy code", "").strip()
    block.clear()
    block.append(code)
    if label and _LANGUAGE.fullmatch(label):
        block["data-language"] = label
