"""Token ids that mean something, read from a target's files.

Loading the tokenizer as transformers does takes seconds; what is asked for here stands in its
files.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from lib.files import read_json
from lib.target_facts import read_facts


@dataclass(frozen=True)
class SpecialIds:
    """Ids of a target's tokenizer.

    Attributes:
        id_of: gives the id of a token by its text; None for a text that is no token.
        ends: ids that end a turn or are padding.
    """

    id_of: Callable[[str], int | None]
    ends: frozenset[int]


def read_special_ids(target: Path, trust_remote_code: bool) -> SpecialIds:
    """Read the ids of a target."""
    facts = read_facts(target)
    if facts.end_token is None or not (target / "tokenizer.json").is_file():
        return _ids_of_tokenizer(target, trust_remote_code)
    id_of = Tokenizer.from_file(str(target / "tokenizer.json")).token_to_id
    texts = [text for text in (facts.end_token, facts.pad_token) if text is not None]
    ends = {number for text in texts if (number := id_of(text)) is not None}
    if (target / "generation_config.json").is_file():
        stop = read_json(target / "generation_config.json").get("eos_token_id") or []
        ends |= set(stop if isinstance(stop, list) else [stop])
    return SpecialIds(id_of, frozenset(ends))


def _ids_of_tokenizer(target: Path, trust_remote_code: bool) -> SpecialIds:
    """Return the ids of a tokenizer that has its files in another form."""
    from lib.rendering import Renderer, ThinkingMode

    renderer = Renderer(target, ThinkingMode(), trust_remote_code)
    padding = {renderer.tokenizer.pad_token_id} - {None}
    return SpecialIds(renderer.tokenizer.get_vocab().get, renderer.end_of_turn_ids | padding)
