"""HTML of a chat page back to the Markdown that the page was made from.

A page shows what an assistant wrote: paragraphs, headings, lists, quotes, tables, code, formulas.
Their text is not escaped, because models do not escape it either. The time grows with the size of
the page alone, however damaged it is.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

_DEEPEST = 100
"""Elements inside one another; a page that was made from Markdown has far fewer."""

_EMPTY = frozenset(("br", "col", "hr", "img", "input", "wbr"))
_UNSEEN = frozenset(("button", "script", "style", "svg"))
_SVG = frozenset(("circle", "g", "line", "path", "polygon", "polyline", "rect"))
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_BLOCKS = frozenset(
    ("blockquote", "div", "hr", "li", "ol", "p", "pre", "section", "table", "ul")
).union(_HEADINGS)
_TABLE_PARTS = frozenset(("caption", "colgroup", "tbody", "td", "tfoot", "th", "thead", "tr"))
_MARKS = {
    **dict.fromkeys(("b", "strong"), ("**", "**")),
    **dict.fromkeys(("em", "i"), ("*", "*")),
    **dict.fromkeys(("del", "s"), ("~~", "~~")),
    **{name: (f"<{name}>", f"</{name}>") for name in ("kbd", "sub", "sup")},
}
_HOLDERS = frozenset(("div", "li", "p", "section", "span", "wbr"))
_TALL = frozenset(("blockquote", "hr", "ol", "pre", "table", "ul"))

PAGE_TAGS = (_EMPTY | _UNSEEN | _SVG | _BLOCKS | _TABLE_PARTS | _HOLDERS | {"a", "code"}).union(
    _MARKS
)
"""The elements that Markdown becomes on a chat page, and those of the buttons around it."""

_RULE = "---"
_RULES = {"left": ":---", "center": ":---:", "right": "---:"}
_ALIGNMENT = re.compile(r"text-align: ?(left|center|right)")
_SPACE = re.compile(r"[ \t\r\n\f]+")
_BREAKS = re.compile(r"(?:  \n){2,}")
_BACKTICKS = re.compile(r"`+")
_TAG_START = re.compile(r"<[A-Za-z/!?]")
_LANGUAGE_CLASS = re.compile(r"lang(?:uage)?-(\S+)")
_LANGUAGE = re.compile(r"[A-Za-z0-9+#.\-]{0,20}")
_NO_BARE_ADDRESS = re.compile(r"[\s()<>]")


def html_to_markdown(html: str) -> str:
    """Convert the HTML of one answer.

    Code keeps its text to the character, and the language of a code block moves to its fence. What
    a page does not show as text of the answer goes: buttons, drawings, comments.

    Raises:
        ValueError: the HTML is damaged or nested without end, or holds what Markdown cannot say.
    """
    return "\n\n".join(_blocks(_parse(html).children))


@dataclass(slots=True)
class _Element:
    """An element of the page.

    Attributes:
        is_block: it is a block, or one is inside it.
    """

    name: str
    attributes: dict[str, str]
    children: "list[_Element | str]" = field(default_factory=list)
    is_block: bool = False

    def has_class(self, *names: str) -> bool:
        return not set(names).isdisjoint(self.attributes.get("class", "").split())

    def inner(self) -> "Iterator[_Element]":
        """Yield all elements inside, in order."""
        for child in self.children:
            if isinstance(child, _Element):
                yield child
                yield from child.inner()

    def text(self, without: "_Element | None" = None) -> str:
        """Return the text that the page shows of it, without that of one element inside."""
        if self is without or self.name in _UNSEEN:
            return ""
        if self.name == "br":
            return "\n"
        return "".join(
            child if isinstance(child, str) else child.text(without) for child in self.children
        )


class _Parser(HTMLParser):
    """Builds the tree of elements; `open` are those that the next text is in."""

    def __init__(self) -> None:
        super().__init__()
        self.open = [_Element("div", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == self.open[-1].name and tag in ("li", "p"):  # their end tags may be left out
            self.open.pop()
        element = _Element(tag, {key: value or "" for key, value in attrs})
        self.open[-1].children.append(element)
        if tag in _BLOCKS or element.has_class("katex-display"):
            for holder in (*self.open, element):
                holder.is_block = True
        if tag in _EMPTY:
            return
        if len(self.open) > _DEEPEST:
            raise ValueError("elements are nested without end")
        self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        for depth in range(len(self.open) - 1, 0, -1):
            if self.open[depth].name == tag:
                del self.open[depth:]
                return

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)

    def handle_pi(self, data: str) -> None:
        raise ValueError(f"<?{data[:40]}> is no HTML")


def _parse(html: str) -> _Element:
    if "<![" in html or html.rfind("<!--") > html.rfind("-->"):
        raise ValueError("a section or a comment is not closed")
    if _TAG_START.search(html, html.rfind(">") + 1):
        raise ValueError("a tag is not closed")
    parser = _Parser()
    parser.feed(html)
    parser.close()
    if any(element.name in _UNSEEN for element in parser.open):
        raise ValueError(f"<{parser.open[-1].name}> is not closed")
    return parser.open[0]


def _blocks(nodes: Iterable[_Element | str]) -> list[str]:
    """Return the texts of the blocks among nodes, and of what stands between them."""
    blocks: list[str] = []
    line: list[_Element | str] = []
    for node in nodes:
        if isinstance(node, _Element) and node.is_block:
            blocks += [_line(line), *_block(node)]
            line = []
        else:
            line.append(node)
    return [block for block in (*blocks, _line(line)) if block]


def _block(element: _Element) -> list[str]:
    name = element.name
    if element.has_class("katex-display", "math-display"):
        return [f"$$\n{_formula(element)}\n$$"]
    if name in _HEADINGS:
        return [f"{_HEADINGS[name]} {_one_line(element, ' ')}"]
    if name == "pre":
        return [_code_block(element)]
    if name in ("ol", "ul"):
        return [_list(element)]
    if name == "table":
        return [_table(element)]
    if name == "blockquote":
        return [_indented("\n\n".join(_blocks(element.children)), "> ", "> ")]
    if name == "hr":
        return ["---"]
    if name in _HOLDERS:
        return _blocks(element.children)
    raise ValueError(f"<{name}> around a block")


def _line(nodes: Iterable[_Element | str]) -> str:
    """Return the text of a paragraph; several breaks in a row end it, as they do for the eye."""
    lines = "".join(map(_span, nodes)).split("  \n")
    return _BREAKS.sub("\n\n", "  \n".join(line.strip(" \n") for line in lines)).strip(" \n")


def _one_line(element: _Element, line_break: str) -> str:
    if tall := [inner.name for inner in element.inner() if inner.name in _TALL]:
        raise ValueError(f"<{tall[0]}> in the one line of <{element.name}>")
    text = line_break.join(_blocks(element.children))
    return text.replace("  \n", line_break).replace("\n\n", line_break).replace("\n", " ")


def _span(node: _Element | str) -> str:
    """Return the text of a node inside a paragraph."""
    if isinstance(node, str):
        return _SPACE.sub(lambda found: "\n" if "\n" in found[0] else " ", node)
    name = node.name
    if name in _UNSEEN:
        return ""
    if name == "br":
        return "  \n"
    if name == "code":
        return _code_span(node.text())
    if name == "img":
        return f"![{node.attributes.get('alt', '')}]{_address(node, 'src')}"
    if name == "input" and node.attributes.get("type") == "checkbox":
        return "[x]" if "checked" in node.attributes else "[ ]"
    if name == "math" or node.has_class("katex", "math-inline"):
        return f"${_formula(node)}$"
    text = "".join(map(_span, node.children))
    if name == "a":
        is_bare = text == node.attributes.get("href", text)
        return text if is_bare else _marked(text, "[", f"]{_address(node, 'href')}")
    if name in _MARKS:
        return _marked(text, *_MARKS[name])
    if name in _HOLDERS:
        return text
    raise ValueError(f"<{name}> in a text")


def _marked(text: str, before: str, after: str) -> str:
    """Put marks around a text; white space at its ends stays outside, or they would not count."""
    inner = text.strip(" \n")
    return text.replace(inner, f"{before}{inner}{after}", 1) if inner else text


def _address(element: _Element, key: str) -> str:
    address, title = element.attributes.get(key, ""), element.attributes.get("title", "")
    if _NO_BARE_ADDRESS.search(address):
        address = f"<{address}>"
    return f'({address} "{title}")' if title else f"({address})"


def _formula(element: _Element) -> str:
    """Return the TeX of a formula, which a page that draws it keeps beside the drawing."""
    inner = list(element.inner())
    for source in inner:
        if source.name == "annotation":
            return source.text().strip()
    if any(part.name == "math" or part.has_class("katex") for part in (element, *inner)):
        raise ValueError("a formula without its source")
    return element.text().strip()


def _code_span(text: str) -> str:
    if not text:
        return ""
    mark = "`" * (_longest_run(text) + 1)
    is_spaced = text[0] == text[-1] == " " and text.strip()
    gap = " " if is_spaced or "`" in (text[0], text[-1]) else ""
    return f"{mark}{gap}{text}{gap}{mark}"


def _code_block(block: _Element) -> str:
    codes = [element for element in block.inner() if element.name == "code"]
    if len(codes) > 1:
        raise ValueError("a block with several pieces of code")
    if codes:
        language, body = _language(block, codes[0]), codes[0].text()
    else:
        language, body = "", block.text().removeprefix("\n")
    fence = "`" * max(3, _longest_run(body) + 1)
    end = "\n" if body and not body.endswith("\n") else ""
    return f"{fence}{language}\n{body}{end}{fence}"


def _language(block: _Element, code: _Element) -> str:
    """Return the language that the class of the code, or the page above it, names."""
    label = block.text(without=code).replace("Copy code", "").strip()
    if not _LANGUAGE.fullmatch(label):
        raise ValueError(f"text beside the code of a block: {label!r}"[:120])
    named = _LANGUAGE_CLASS.search(code.attributes.get("class", ""))
    return named[1] if named else label


def _longest_run(text: str) -> int:
    return max(map(len, _BACKTICKS.findall(text)), default=0)


def _list(element: _Element) -> str:
    items = list(_parts(element, "li"))
    children = (child for item in items for child in item.children)
    is_loose = any(isinstance(child, _Element) and child.name == "p" for child in children)
    gap = "\n\n" if is_loose else "\n"
    first = int(element.attributes.get("start", 1))
    lines: list[str] = []
    for number, item in enumerate(items, first):
        mark = f"{number}. " if element.name == "ol" else "- "
        lines.append(_indented(gap.join(_blocks(item.children)), mark, " " * len(mark)))
    return gap.join(lines)


def _indented(text: str, first: str, others: str) -> str:
    """Put something before each line, and at blank lines what is left of it without its end."""
    head, *tail = text.split("\n")
    lines = [first + head, *(others + line if line else others.rstrip() for line in tail)]
    return "\n".join(lines) if text else first.rstrip()


def _table(element: _Element) -> str:
    rows = [list(_parts(row, "td", "th")) for row in _rows(element)]
    width = max(map(len, rows), default=0)
    if not width:
        return ""
    lines = [[_cell(cell) for cell in row] + [""] * (width - len(row)) for row in rows]
    if any(cell.name != "th" for cell in rows[0]):
        lines.insert(0, [""] * width)
    rules = [_RULES.get(_alignment(cell), _RULE) for cell in rows[0]]
    lines.insert(1, rules + [_RULE] * (width - len(rules)))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _rows(element: _Element) -> Iterator[_Element]:
    for part in _parts(element, "colgroup", "tbody", "tfoot", "thead", "tr"):
        if part.name == "tr":
            yield part
        elif part.name != "colgroup":
            yield from _rows(part)


def _cell(cell: _Element) -> str:
    for span in ("colspan", "rowspan"):
        if cell.attributes.get(span, "1") != "1":
            raise ValueError(f"a cell with a {span}")
    return _one_line(cell, "<br>").replace("|", r"\|")


def _alignment(cell: _Element) -> str:
    found = _ALIGNMENT.search(cell.attributes.get("style", ""))
    return found[1] if found else cell.attributes.get("align", "")


def _parts(element: _Element, *names: str) -> Iterator[_Element]:
    """Yield the elements right inside, which must be all that is there."""
    for child in element.children:
        if isinstance(child, str):
            if child.strip():
                raise ValueError(f"text right inside <{element.name}>")
        elif child.name in names:
            yield child
        else:
            raise ValueError(f"<{child.name}> right inside <{element.name}>")
