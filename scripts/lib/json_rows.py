"""Rows of JSON text that arrives in pieces: one array, or values one after another.

Python's own decoder keeps lone surrogates and large numbers as they are; readers that infer column
types change text (dates, numbers, nested JSON) in silence.
"""

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

_LONGEST_ROW = 1 << 26
"""Characters; where a bracket is lost, all rows after it seem to belong to one."""

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")
_BYTE_ORDER_MARK = "\ufeff"


def json_rows(pieces: Iterator[bytes], damaged: Callable[[str, int], ValueError]) -> Iterator[Any]:
    """Yield the elements of an array, or values that follow each other with or without space.

    Args:
        pieces: UTF-8 text, cut anywhere. A ValueError says why the text breaks off.
        damaged: makes the error from what is wrong and the 0-based byte of the text where the row
            that cannot be read begins (between rows: where something else should stand).

    Raises:
        ValueError: the one that `damaged` makes, after the rows before the damage.
    """
    text = _begun(pieces, damaged)
    yield from _elements(text) if text.next_mark() == "[" else _values(text)


def json_line_rows(
    pieces: Iterator[bytes], damaged: Callable[[str, int], ValueError]
) -> Iterator[Any]:
    """Yield values that follow each other, of which the first may be a list.

    Arguments and errors are those of `json_rows`.
    """
    yield from _values(_begun(pieces, damaged))


def _begun(pieces: Iterator[bytes], damaged: Callable[[str, int], ValueError]) -> "_Text":
    text = _Text(pieces, damaged)
    if text.next_mark() == _BYTE_ORDER_MARK:
        text.take()
    return text


def _values(text: "_Text") -> Iterator[Any]:
    while text.next_mark():
        yield text.value(may_end=True)


def _elements(text: "_Text") -> Iterator[Any]:
    """Yield the elements of the array that comes next; nothing may follow it."""
    text.take()
    mark = text.next_mark()
    while mark != "]":
        if not mark:
            raise text.damage("the array is not closed")
        yield text.value(may_end=False)
        mark = text.next_mark()
        if mark == ",":
            text.take()
            mark = text.next_mark()
            if mark == "]":
                raise text.damage("no value after the last comma")
        elif mark and mark != "]":
            raise text.damage("a comma or ] is missing")
    text.take()
    if text.next_mark():
        raise text.damage("text after the array")


class _Text:
    """Text from the next character on, read as far as is needed."""

    def __init__(self, pieces: Iterator[bytes], damaged: Callable[[str, int], ValueError]):
        self._pieces = pieces
        self._damaged = damaged
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._at = 0
        self._last_length = 0
        self._bytes = 0
        self._has_ended = False
        self._flaw = ""

    def take(self) -> None:
        """Step over one character."""
        self._at += 1

    def next_mark(self) -> str:
        """Step over white space and return the next character, "" at the end."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read(1):
                if self._flaw:
                    raise self.damage(self._flaw)
                return ""

    def value(self, may_end: bool) -> Any:
        """Decode the next value, reading on while it is incomplete.

        Args:
            may_end: whether the text may end with the value; if not, a number there is cut.
        """
        if len(self._text) - self._at < self._last_length:  # it would be decoded in vain
            self._read(1)
        while True:
            rest = len(self._text) - self._at
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                what = f"no complete JSON value ({error.msg})"
                if self._may_be_cut(error):
                    if rest >= _LONGEST_ROW:
                        what = f"no end of the JSON value within {rest} characters"
                    elif self._read(rest):  # as much again: linear time for a row of any size
                        continue
                    else:
                        what = self._flaw or what
                raise self.damage(what) from error
            except (ValueError, RecursionError) as error:  # a number or a nesting beyond the limits
                raise self.damage(f"no JSON value within Python's limits ({error})") from error
            if type(value) in (int, float) and len(self._text) - end < 3:
                if self._read(1):
                    continue
                after = self._text[end:]  # "." of "-0." and "e+" of "1e+" are left of a cut number
                if not after.strip(".eE+-") and (after or self._flaw or not may_end):
                    raise self.damage(self._flaw or "no complete JSON value (a number is cut)")
            self._last_length = end - self._at
            self._at = end
            return value

    def damage(self, what: str) -> ValueError:
        """Make the error for the next character."""
        undecoded, _ = self._decoder.getstate()
        rest = self._text[self._at :].encode()
        return self._damaged(what, self._bytes - len(undecoded) - len(rest))

    def _may_be_cut(self, error: json.JSONDecodeError) -> bool:
        """Say whether more text could cure an error: it stands at the end, or in an open string."""
        return error.msg.startswith("Unterminated string") or len(self._text) - error.pos < 16

    def _read(self, count: int) -> bool:
        """Read on by `count` characters or more, by fewer at the end; say if there were any."""
        parts = []
        while count > 0 and not self._has_ended:
            parts.append(self._decoded_piece())
            count -= len(parts[-1])
        if not any(parts):
            return False
        self._text, self._at = "".join([self._text[self._at :], *parts]), 0
        return True

    def _decoded_piece(self) -> str:
        try:
            piece = next(self._pieces, None)
            self._has_ended = piece is None
            self._bytes += len(piece or b"")
            return self._decoder.decode(piece or b"", final=self._has_ended)
        except UnicodeDecodeError as error:
            self._decoder.reset()
            self._bytes -= len(error.object) - error.start
            self._has_ended, self._flaw = True, "a row that is no UTF-8 text"
            return error.object[: error.start].decode()
        except ValueError as error:
            self._has_ended, self._flaw = True, str(error)
            return ""
