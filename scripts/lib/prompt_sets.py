"""One public set of prompts: raw rows to held-out prompts, with every row accounted for."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from lib.cleaning import cleaned
from lib.conversation import Conversation, Rejected, to_record
from lib.jsonl import json_line
from lib.prompt_formats import PROMPT_FORMATS
from lib.row_accounts import (
    Accounts,
    Fate,
    Limits,
    NumberedRow,
    UnusableSource,
    account_for_rows,
)


@dataclass(frozen=True)
class PromptSettings:
    """What decides the prompts of a set; config/README.md says what the keys mean."""

    name: str
    format: str
    domain: str
    max_prompts: int | None = None
    max_reject_rate: float = 0.5


def prepare_prompts(
    settings: PromptSettings,
    paths: Sequence[Path],
    accounts: Accounts,
    advance: Callable[[int], None],
) -> dict[str, Any]:
    """Convert the raw files of a set to prompts in the form of `resources/evaluation/`.

    An identity follows from the question alone, and so does the choice of `max_prompts`: neither
    depends on the order of the rows or on the instruction. Arguments, files and errors are those
    of `account_for_rows`.

    Returns:
        The counts.

    Raises:
        UnusableSource: no prompt is left, too.
    """
    form = PROMPT_FORMATS[settings.format]

    def stored(question: Conversation, name: str) -> tuple[str, bytes]:
        record = _prompt_record(question.of_source(name), settings.domain, form.instruction)
        return record["id"], json_line(record)

    limits = Limits(settings.name, settings.max_prompts, settings.max_reject_rate)
    counts = account_for_rows(
        limits, paths, lambda rows: _fates(form.convert, rows), stored, accounts, advance
    )
    if not counts["conversations"]:
        accounts.records.unlink()
        raise UnusableSource(f"{settings.name}: none of {counts['rows_in']} rows gives a prompt")
    return counts


def _fates(
    convert: Callable[[Any], Conversation | Rejected], rows: Iterable[NumberedRow]
) -> Iterator[Fate]:
    """Yield what becomes of each row; of rows that ask the same only the first is kept."""
    seen: set[str] = set()
    for row in rows:
        outcome = cleaned(convert(row[1]))
        if isinstance(outcome, Conversation):
            fingerprint = outcome.fingerprint()
            if fingerprint in seen:
                outcome = Rejected("repeated_prompt")
            seen.add(fingerprint)
        yield Fate((row,), outcome)


def _prompt_record(question: Conversation, domain: str, instruction: str) -> dict[str, Any]:
    """Return the record of a prompt, with the bare question where an instruction follows it."""
    *before, last = question.turns
    asked = replace(last, text=f"{last.text}\n\n{instruction}") if instruction else last
    record = to_record(replace(question, turns=(*before, asked)))
    bare = {"question": last.text} if instruction else {}
    del record["source"]
    return {"id": record.pop("id"), "domain": domain, **bare, **record}
