"""HTML of a chat page to the Markdown that the assistant had written."""

import re

from bs4 import BeautifulSoup, Tag
from bs4.exceptions import ParserRejectedMarkup
from markdownify import MarkdownConverter

_LANGUAGE = re.compile(r"[A-Za-z0-9+#.\-]{0,20}")


class _Converter(MarkdownConverter):
    """Markdownify with the fences that chat models write."""

    def convert_pre(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        code = el.find("code")
        language = str(el.get("data-language", ""))
        body = (code if code is not None else el).get_text()
        longest = max(map(len, re.findall("`+", body)), default=0)
        fence = "`" * max(3, longest + 1)
        body = body.removesuffix("\n")
        return f"\n\n{fence}{language}\n{body}\n{fence}\n\n"


def html_to_markdown(html: str) -> str:
    """Convert the HTML of one answer.

    Code keeps its text to the character, the language of a code block moves to its fence, and
    the page's buttons ("Copy code") go.

    Raises:
        ValueError: it is not HTML.
    """
    try:
        soup = BeautifulSoup(html, "html.parser")
    except ParserRejectedMarkup as error:
        raise ValueError(f"not HTML: {error}") from error
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
    return str(converter.convert_soup(soup)).strip()


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
