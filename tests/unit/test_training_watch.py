"""A training that cannot become a drafter is ended, and one that can is left alone."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.training_watch import TrainingError, TrainingWatch, WatchLimits


def step(number, loss=1.0, missing=0.0, speed=1000.0):
    metrics = {"loss": loss, "error_records": missing}
    return {"global_step": number, "train": metrics, "profile": {"tokens_per_s": speed}}


def validation(epoch, acceptance, loss=1.0):
    return {"epoch": epoch, "val": {"loss_epoch": loss, "eal_epoch": acceptance}}


def watch(lines, rows=100):
    looking = TrainingWatch(WatchLimits(), rows)
    for line in lines:
        looking.look(line)


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_ends_it_at_once(loss):
    with pytest.raises(TrainingError, match="step 3 is not finite"):
        watch([*map(step, range(3)), step(3, loss)])
    with pytest.raises(TrainingError, match="epoch 1 is not finite"):
        watch([validation(0, 2.0, loss)])


def test_samples_without_hidden_states_end_it():
    with pytest.raises(TrainingError, match=r"2\.0% of the samples"):
        watch(step(n, missing=float(n % 50 == 0)) for n in range(150))
    watch(step(n, missing=float(n == 0)) for n in range(500))


def test_the_share_is_one_of_samples_however_many_a_step_packs():
    def lines(missing):
        yield {"steps_per_epoch": 500}
        yield from (step(n, missing=missing) for n in range(150))

    watch(lines(0.3), rows=20_000)  # 0.3 of 40 a step
    with pytest.raises(TrainingError, match=r"1\.2% of the samples"):
        watch(lines(0.5), rows=20_000)


def test_a_drafter_that_only_guesses_after_two_epochs_ends_it():
    with pytest.raises(TrainingError, match=r"after epoch 2 .* is 1\.01"):
        watch([validation(0, 1.0), validation(1, 1.01)])
    watch([validation(0, 1.0), validation(1, 1.2), validation(2, 1.0)])
    watch([validation(0, 1.0), validation(0, 1.0)])  # one epoch, validated again after a kill


def test_a_training_that_nearly_stands_still_ends():
    slow = [step(n, speed=1000.0) for n in range(200)] + [step(n, speed=20.0) for n in range(200)]
    with pytest.raises(TrainingError, match="20 tokens a second, where it was 1000"):
        watch(slow)
    watch(slow[:240])  # a short pause is none
    watch(step(n, speed=100.0 + n) for n in range(300))


@settings(max_examples=50, derandomize=True, deadline=None)
@given(
    st.lists(st.floats(0, 1e6), max_size=300),
    st.lists(st.floats(1.05, 16), max_size=5),
)
def test_a_training_that_learns_is_left_alone(losses, lengths):
    watch(step(number, loss) for number, loss in enumerate(losses))
    watch(validation(epoch, length) for epoch, length in enumerate(lengths))
