"""The journey of the data: at every stage what came is what went, or the numbers are refused."""

import random
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from written_run import write_run

from lib.data_journey import FIRST_UNIT, Part, Step, source_journey, whole_journey
from lib.figure_style import figure_svg
from lib.files import read_json
from lib.journey_figure import journey_figure
from lib.report import RunFiles


def counts(files: RunFiles):
    sources = [read_json(path) for path in files.sources]
    responses = None if files.responses is None else read_json(files.responses)
    return sources, (read_json(files.merged), responses, read_json(files.rows))


@pytest.fixture(scope="module", params=[True, False], ids=["regenerated", "kept"])
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return write_run(folder, 20_000, sources=5, regenerated=request.param, served=False)[1]


def test_what_comes_and_joins_is_what_is_lost_and_goes_on(run):
    sources, rest = counts(run)
    journey = whole_journey(sources, *rest)
    assert journey[0].arrives == sum(source["rows_in"] for source in sources)
    assert journey[-1].goes_on == rest[-1]["rows"]
    assert len(journey) == (3 if run.responses is None else 4)
    for step in journey:
        assert step.arrives + step.amount_joined == step.amount_lost + step.goes_on
        assert all(part.amount > 0 for part in (*step.lost, *step.joined))
    for step, following in pairwise(journey):
        assert step.goes_on == following.arrives


def test_the_journeys_of_the_sources_add_up_to_that_of_all(run):
    sources, rest = counts(run)
    whole = whole_journey(sources, *rest)
    each = [source_journey(source, *rest) for source in sources]
    for number, step in enumerate(whole):
        for name in ("arrives", "goes_on", "amount_lost", "amount_joined"):
            assert getattr(step, name) == sum(getattr(one[number], name) for one in each)


def test_every_reason_is_explained(run):
    sources, rest = counts(run)
    for step in whole_journey(sources, *rest):
        assert all(part.meaning for part in (*step.lost, *step.joined))


def test_a_source_that_gave_nothing_has_a_journey_too(run):
    _, (merged, responses, rows) = counts(run)
    name = "nothing"
    source = dict.fromkeys(("rows_in", "rows_written", "conversations"), 0)
    source |= {"source": name, "rejected_by_reason": {}}
    merged["sources"][name] = {}
    journey = source_journey(source, merged, responses, rows)
    assert {step.arrives for step in journey} | {step.goes_on for step in journey} == {0}


def test_numbers_that_do_not_go_together_are_refused(run):
    sources, (merged, responses, rows) = counts(run)
    rows["rows"] = rows["turns_in"] + 1
    with pytest.raises(ValueError, match=r"tokenize_conversations: -.* for the reason shared_row"):
        whole_journey(sources, merged, responses, rows)
    sources, (merged, responses, rows) = counts(run)
    merged["sources"]["source_01"]["train"] -= 1
    with pytest.raises(ValueError, match="went on from normalize_source, and"):
        whole_journey(sources, merged, responses, rows)
    sources, rest = counts(run)
    sources[0]["rejected_by_reason"]["empty_turn"] = 10_000
    with pytest.raises(ValueError, match=r"normalize_source: .* came in"):
        whole_journey(sources, *rest)


@pytest.mark.parametrize(("parts", "joined"), [(0, 0), (1, 3), (4, 1), (12, 0), (12, 3)])
def test_any_journey_can_be_drawn(parts, joined):
    chance = random.Random(parts)

    def some(count):
        return tuple(
            Part(f"<reason> {n} & $x_{{", chance.randint(1, 10**6), "", chance.random() < 0.5)
            for n in range(count)
        )

    steps, arrives = [], 10 ** chance.randint(0, 7)
    for number in range(3):
        lost, gained = some(parts), some(joined)
        left = arrives + sum(p.amount for p in gained) - sum(p.amount for p in lost)
        gained += (Part("more", 1 - left, "", False),) if left < 1 else ()
        steps.append(Step(f"stage {number}", "things", arrives, max(left, 1), gained, lost))
        arrives = steps[-1].goes_on
    svg = figure_svg(lambda: journey_figure(tuple(steps)), "journey")
    assert "nan" not in svg
    words = ["".join(node.itertext()) for node in ElementTree.fromstring(svg).iter() if node.text]
    assert FIRST_UNIT in words and f"{steps[-1].goes_on:,}" in words
    for part in (part for step in steps for part in step.joined):
        assert {f"+{part.amount:,}", part.reason.replace("_", " ")} <= set(words)


def test_the_same_journey_is_the_same_drawing(run: RunFiles, tmp_path: Path):
    sources, rest = counts(run)
    journey = whole_journey(sources, *rest)
    first, second = (figure_svg(lambda: journey_figure(journey), "journey") for _ in range(2))
    assert first == second
