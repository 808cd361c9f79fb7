"""Text as words and as code tokens, for everything that compares texts."""

import re
import unicodedata

_NO_SPACES = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
)
"""Scripts that put no space between words: Thai, Lao, Burmese, Khmer, kana and Han."""

_ASCII_SPACES = str.maketrans(
    {c: " " for c in map(chr, range(128)) if not (c.isalnum() or c == "_")}
)
_WORD = re.compile(rf"[{_NO_SPACES}]|[^\W{_NO_SPACES}]+")
_CODE_TOKEN = re.compile(r"\w+|[^\w\s]")


def words_of(text: str) -> list[str]:
    """Return the words of a text in order, without case and punctuation.

    In scripts that put no space between words each character counts as one.
    """
    if text.isascii():
        return text.lower().translate(_ASCII_SPACES).split()  # the same, ten times as fast
    return _WORD.findall(_composed(text).casefold())


def code_tokens_of(text: str) -> list[str]:
    """Return names, numbers and single punctuation marks of a text in order, with their case."""
    return _CODE_TOKEN.findall(_composed(text))


def with_single_spaces(text: str) -> str:
    """Return a text with Unicode composed and each run of white space as one space."""
    return " ".join(_composed(text).split())


def question_words(text: str) -> list[str]:
    """Return the words of a question; one without any word is a word of its own."""
    return words_of(text) or [with_single_spaces(text)]


def _composed(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFC", text)
