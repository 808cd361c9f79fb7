"""The curves of a training hold each step once, however often it was interrupted."""

import json
import math
from itertools import pairwise
from xml.etree import ElementTree

import matplotlib
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from speculators.losses import eager
from speculators.models.dflash.metrics import compute_metrics as dflash_metrics
from speculators.models.dflash2.metrics import compute_metrics as dflash2_metrics
from speculators.models.dflash2.metrics import selector_training_candidates
from speculators.models.dspark.metrics import compute_metrics as dspark_metrics
from speculators.models.eagle3.metrics import compute_metrics as eagle3_metrics
from speculators.train.utils import normalize_counted_metrics

from lib.training_curves import read_curves
from lib.training_figures import draw_curves

BLOCK_SIZE = 4


def step(number, epoch=0, loss=2.0, rate=0.001, metrics=None):
    """Return the line that the trainer writes for a step."""
    measured = {"loss": loss, "eal": 1 + 1 / loss, "error_records": 0.0}
    return {
        "train": measured if metrics is None else metrics,
        "profile": {"step_ms": 50.0, "tokens_per_s": 1000.0 * loss},
        "epoch": epoch,
        "lr": rate,
        "global_step": number,
    }


def validation(epoch, loss=2.0, metrics=None):
    """Return the line that the trainer writes for a validation."""
    measured = {"loss": loss, "eal": 1 + 1 / loss}
    measured |= {f"position_{position}_acc": 1 / position for position in range(1, 12)}
    measured = measured if metrics is None else metrics
    return {"val": {f"{name}_epoch": value for name, value in measured.items()}, "epoch": epoch}


def training(epochs=2, steps=5):
    """Return the lines of a training that learns and is not interrupted."""
    lines = [{"steps_per_epoch": steps}]
    for epoch in range(epochs):
        numbers = range(epoch * steps, (epoch + 1) * steps)
        lines += [step(number, epoch, 8 / (number + 2), 1e-3 / (number + 1)) for number in numbers]
        lines.append(validation(epoch, 8 / (epoch + 2)))
    return lines


@pytest.fixture
def curves_of(tmp_path):
    """Give the function that reads the curves of lines."""

    def read(lines, cut=""):
        path = tmp_path / "metrics.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines) + cut)
        return read_curves(path)

    return read


def content(curves):
    return curves.points(len(curves.steps)), list(curves.validations)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(data=st.data())
def test_an_interrupted_training_has_the_curves_of_one_that_was_not(data, tmp_path_factory):
    steps, epochs = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    events = [line for line in training(epochs, steps) if "epoch" in line]
    written, valid, end = [], {}, 0
    for attempt in range(data.draw(st.integers(1, 4))):
        begin = data.draw(st.sampled_from([*places_to_go_on(events, end)]))
        end = data.draw(st.integers(begin + 1, len(events)))
        done = {place: changed(events[place], attempt) for place in range(begin, end)}
        valid = {place: line for place, line in valid.items() if place < begin} | done
        written += [{"steps_per_epoch": steps}, *done.values()]
    uninterrupted = [valid[place] for place in sorted(valid)]
    folder = tmp_path_factory.mktemp("curves")
    for name, lines in {"interrupted": written, "uninterrupted": uninterrupted}.items():
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    curves = read_curves(folder / "interrupted")
    assert content(curves) == content(read_curves(folder / "uninterrupted"))
    assert list(curves.steps) == list(range(len(curves.steps)))


def places_to_go_on(events, end):
    """Yield where a training that was killed before event `end` may go on: at any earlier step.

    Or at the next one, with the validation between them missing.
    """
    for place, line in enumerate(events):
        if "train" in line and (place <= end or (place == end + 1 and "val" in events[end])):
            yield place


def changed(line, attempt):
    """Return a line with other numbers for each attempt, to tell them apart."""
    kind = "train" if "train" in line else "val"
    return {**line, kind: {name: value + attempt for name, value in line[kind].items()}}


def test_what_was_undone_and_not_reached_again_is_forgotten(curves_of):
    curves = curves_of([*training(epochs=3, steps=4), step(4, 1, loss=0.5)])
    assert list(curves.steps) == [0, 1, 2, 3, 4]
    assert list(curves.epochs) == [1, 1, 1, 1, 2]
    assert curves.points()[-1]["loss"] == 0.5
    assert [(known.epoch, known.step) for known in curves.validations] == [(1, 3)]


def test_of_a_validation_that_was_repeated_the_last_counts(curves_of):
    curves = curves_of([step(0), validation(0, 3.0), validation(0, 1.0)])
    assert [known.loss for known in curves.validations] == [1.0]


def test_a_last_line_that_was_cut_is_ignored(curves_of):
    last = json.dumps(step(10, 2))
    for length in range(0, len(last), 7):
        assert content(curves_of(training(), cut=last[:length])) == content(curves_of(training()))


@settings(max_examples=100, derandomize=True, deadline=None)
@given(
    losses=st.lists(st.floats(0.1, 10), max_size=60),
    most=st.integers(1, 70),
)
def test_points_weigh_each_step_once(losses, most, tmp_path_factory):
    path = tmp_path_factory.mktemp("points") / "metrics.jsonl"
    lines = [step(number, loss=loss) for number, loss in enumerate(losses)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    points = read_curves(path).points(most)
    assert len(points) == min(most, len(losses))
    ends = [-1, *(point["step"] for point in points)]
    lengths = [end - start for start, end in pairwise(ends)]
    assert sum(lengths) == len(losses)
    assert not lengths or max(lengths) - min(lengths) <= 1
    total = sum(point["loss"] * length for point, length in zip(points, lengths, strict=True))
    assert math.isclose(total, sum(losses), abs_tol=1e-9)


def test_points_hold_what_is_known_and_nothing_else(curves_of):
    nothing = step(1, loss=4.0, metrics={"loss": math.nan, "eal": 0.0})
    del nothing["profile"], nothing["lr"]
    curves = curves_of([step(0, loss=4.0), nothing, nothing | {"global_step": 2, "epoch": 1}])
    first, last = curves.points(2)
    assert first == {
        **{"step": 0, "epoch": 1, "loss": 4.0, "acceptance_length": 1.25},
        **{"learning_rate": 0.001, "tokens_per_second": 4000.0},
    }
    assert last == {"step": 2, "epoch": 2}
    (all_three,) = curves.points(1)
    assert {**first, "step": 2, "epoch": 2} == all_three


def test_of_two_optimizers_the_rate_that_the_configuration_sets_is_shown(curves_of):
    curves = curves_of([step(0, rate={"Muon": 0.02, "AdamW": 0.0003})])
    assert curves.points()[0]["learning_rate"] == 0.0003


def logits(blocks, seed):
    return torch.randn(1, blocks * BLOCK_SIZE, 11, generator=torch.Generator().manual_seed(seed))


def metrics_of(algorithm):
    """Return what speculators measures on random logits, as its trainer logs it."""
    given, wanted = logits(6, 0), logits(6, 1)
    mask = torch.ones(1, 6 * BLOCK_SIZE)
    kinds = {"kl_div": (eager.kl_div_loss, 1.0)}
    match algorithm:
        case "dflash":
            _, metrics = dflash_metrics(given, wanted, mask, BLOCK_SIZE, loss_config=kinds)
        case "dspark":
            _, metrics = dspark_metrics(
                *(given, wanted, None, mask, BLOCK_SIZE, kinds), tv_loss_fn=eager.tv_loss
            )
        case "dflash2":
            known = selector_training_candidates(given.topk(3).indices, wanted.argmax(-1))
            candidates, places, contained = known
            _, metrics = dflash2_metrics(
                *(given, wanted, candidates, given.gather(-1, candidates), places, contained),
                *(mask, BLOCK_SIZE, 3),
                loss_config=kinds,
                tv_loss_fn=eager.tv_loss,
            )
        case "eagle3":
            loss, metrics = eagle3_metrics(given, wanted, mask, None, 0, 1.0, kinds)
            metrics |= {"loss_sum": loss, "loss_total": torch.tensor(1.0)}
    return normalize_counted_metrics({name: float(value) for name, value in metrics.items()})


@pytest.mark.parametrize(
    ("algorithm", "positions"),
    [
        ("dflash", BLOCK_SIZE - 1),
        ("dflash2", BLOCK_SIZE - 1),
        ("dspark", BLOCK_SIZE),
        ("eagle3", 0),
    ],
)
def test_each_algorithm_gives_what_it_measures(curves_of, algorithm, positions):
    metrics = metrics_of(algorithm)
    curves = curves_of([step(0, metrics=metrics), validation(0, metrics=metrics)])
    (point,), (known,) = content(curves)
    assert point["loss"] == known.loss == metrics["loss"]
    assert len(known.accuracy_by_position) == positions
    if positions:
        assert 1 <= point["acceptance_length"] == known.acceptance_length <= positions + 1
    else:
        assert "acceptance_length" not in point
        assert known.acceptance_length is None


def test_positions_are_in_the_order_of_the_block(curves_of):
    lines = [step(0), validation(0)]
    lines[1]["val"] = dict(reversed(lines[1]["val"].items()))
    (known,) = curves_of(lines).validations
    assert list(known.accuracy_by_position) == sorted(known.accuracy_by_position, reverse=True)


def texts(path):
    """Return the words of a drawing."""
    root = ElementTree.fromstring(path.read_text())
    return ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]


def drawing(curves, folder):
    draw_curves(curves, folder / "training.svg", BLOCK_SIZE)
    assert [path.name for path in folder.glob("*training.svg*")] == ["training.svg"]
    return folder / "training.svg"


def test_a_drawing_says_what_it_shows(curves_of, tmp_path):
    words = texts(drawing(curves_of(training()), tmp_path))
    for label in ("loss", "acceptance length (tokens)", "learning rate", "tokens per second"):
        assert label in words
    assert {"training", "validation", f"block size {BLOCK_SIZE}"} <= set(words)
    assert any(word.startswith("step") for word in words)


def test_a_drawing_has_the_same_bytes_whenever_it_is_drawn(curves_of, tmp_path):
    curves = curves_of(training(epochs=3, steps=700))
    first = drawing(curves, tmp_path).read_bytes()
    with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": "other", "axes.grid": True}):
        assert drawing(curves, tmp_path).read_bytes() == first
        assert matplotlib.rcParams["font.size"] == 30
    assert b"<dc:date>" not in first
    assert len(first) < 200_000


@pytest.mark.parametrize(
    ("lines", "missing"),
    [
        ([step(7)], {"validation"}),
        ([step(0), step(1)], {"validation"}),
        ([step(0), validation(0)], set()),
        ([step(0, metrics={"loss": 1.0}), validation(0, metrics={"loss": 1.0})], {"block size 4"}),
        ([step(0), step(1, metrics={}), step(2), validation(0, metrics={})], {"validation"}),
        ([step(0, rate=None), step(1, loss=1e9, rate=None)], {"learning rate", "validation"}),
    ],
)
def test_what_the_trainer_did_not_log_is_not_drawn(curves_of, tmp_path, lines, missing):
    words = set(texts(drawing(curves_of(lines), tmp_path)))
    usual = {"loss", "learning rate", f"block size {BLOCK_SIZE}", "training", "validation"}
    assert usual - words == missing


def test_one_step_is_named_once(curves_of, tmp_path):
    assert texts(drawing(curves_of([step(7)]), tmp_path)).count("7") == 1


def test_without_a_step_there_is_nothing_to_draw(curves_of, tmp_path):
    curves = curves_of([{"steps_per_epoch": 5}])
    assert content(curves) == ([], [])
    with pytest.raises(ValueError, match=r"training\.svg: the trainer logged no step"):
        drawing(curves, tmp_path)
    assert not (tmp_path / "training.svg").exists()
