"""What the tests of all formats share: a raw row in, its fate out."""

from pathlib import Path

from lib.cleaning import cleaned
from lib.conversation import Conversation, Rejected
from lib.formats import RowFormat, load_format
from lib.readers import read_rows

SAMPLES = {
    path.name.partition(".")[0]: list(read_rows(path))
    for path in sorted(Path(__file__).parents[3].joinpath("resources/samples").iterdir())
}
"""The raw rows of every sample file, by format."""


def outcomes(format_name, rows):
    """Return what becomes of raw rows: positions of those that belong together, and the outcome."""
    form = load_format(format_name)
    if isinstance(form, RowFormat):
        return [((position,), cleaned(form.convert(row))) for position, row in enumerate(rows)]
    groups = {}
    for position, row in enumerate(rows):
        groups.setdefault(form.group(row), []).append(position)
    return [
        (tuple(members[n] for n in positions), cleaned(outcome))
        for members in groups.values()
        for positions, outcome in form.combine([rows[position] for position in members])
    ]


def sample_oddities(format_name):
    """Return the reasons and the repairs that the sample rows of a format show."""
    found = [each for _, each in outcomes(format_name, SAMPLES[format_name])]
    reasons = {each.reason for each in found if isinstance(each, Rejected)}
    repairs = {r for each in found if isinstance(each, Conversation) for r in each.repairs}
    return reasons, repairs


def outcome(format_name, row):
    """Return what becomes of a row that stands alone."""
    [(positions, found)] = outcomes(format_name, [row])
    assert positions == (0,)
    return found


def accepted(format_name, row):
    found = outcome(format_name, row)
    assert isinstance(found, Conversation), found
    return found


def reason(format_name, row):
    found = outcome(format_name, row)
    assert isinstance(found, Rejected), found
    return found.reason


def texts(conversation):
    return [(turn.role, turn.text) for turn in conversation.turns]
