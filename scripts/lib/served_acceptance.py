"""Acceptance and speed of a drafter in a vLLM server, and of the same server without it or with
the target's own MTP head.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from lib.acceptance import Acceptance
from lib.evaluation import EvaluateSettings, HeadMeasurement, Measurement, Question
from lib.files import read_json
from lib.losslessness import Losslessness, compare_answers
from lib.mtp_head import check_head
from lib.rendering import Renderer
from lib.sampling import Sampling
from lib.serving import KeptServer, Serving, kept_server
from lib.speculation import Speculation, check_log
from lib.speed import Timing
from lib.vllm_answers import OPTIONS, completion_request
from lib.vllm_counters import Counters

_LIKELIEST = 20
"""How many of the likeliest tokens vLLM names at most, unless it is told otherwise."""

_PATIENCE = 10.0
"""Seconds within which vLLM has counted an answer that it has given."""


@dataclass(frozen=True)
class Answered:
    """An answer of the server: its token ids, the end included, and the seconds that it took."""

    ids: tuple[int, ...]
    seconds: float


@dataclass(frozen=True)
class Evaluated:
    """The target, how it answers, and where it is served.

    Attributes:
        asked: the questions in each thinking mode that is measured.
        log: the stage's log; those of the servers lie beside it.
        say: shows a line on the terminal.
        advance: called with the number of answers since the last call.
    """

    settings: EvaluateSettings
    asked: Sequence[Sequence[Question]]
    renderer: Renderer
    serving: Serving
    log: Path
    say: Callable[[str], None]
    advance: Callable[[int], None]


@dataclass(frozen=True)
class _Pass:
    """Answers to questions in their order, the times by domain, what was drafted for each."""

    answers: Sequence[Answered]
    timings: dict[int, dict[str, Timing]]
    acceptances: Sequence[Acceptance]


_Compare = Callable[[_Pass], Losslessness]
"""Compares the answers of a pass with those of the target alone."""


def answers_to_make(settings: EvaluateSettings, questions: int) -> int:
    """Return how many answers `measure_served` asks for, those that only warm up aside."""
    servers = 1 + len(settings.baseline)
    return servers * len({1, *settings.concurrency}) * questions


def measure_served(evaluated: Evaluated, drafter: Path) -> list[Measurement]:
    """Measure a drafter at work, and the baselines on the same prompts.

    What is accepted is counted by vLLM, one request at a time, so each answer has its own counts.

    Args:
        drafter: folder of the exported drafter.

    Returns:
        What was measured in each thinking mode.

    Raises:
        ValueError: a server did not draft as it should, or the target has no MTP head to measure.
        ServerError: a server did not start, or ended.
    """
    settings, target = evaluated.settings, evaluated.renderer.target
    folder = drafter.resolve()
    speculation = Speculation.of_drafter(read_json(folder / "config.json"), str(folder))
    head = None
    if "mtp" in settings.baseline:
        check_head(target, settings.mtp_tokens)
        head = Speculation.of_head(str(target), settings.mtp_tokens)
    context = _context(evaluated, max(speculation.tokens, head.tokens if head else 0))
    drafted = _drafting(evaluated, context, speculation, "drafter")
    by_head: Sequence[_Pass | None] = [None] * len(drafted)
    if head is not None:
        by_head = _drafting(evaluated, context, head, "mtp")
    measurement = partial(_measurement, settings)
    if "none" not in settings.baseline:
        return [measurement(*passes) for passes in zip(drafted, by_head, strict=True)]
    with _served(evaluated, context, None, "baseline") as server:
        plain = [_run(evaluated, server, questions) for questions in evaluated.asked]
        compares = [
            partial(_compare, server, questions, one.answers)
            for questions, one in zip(evaluated.asked, plain, strict=True)
        ]
        passes = zip(drafted, by_head, plain, compares, strict=True)
        return [measurement(*each) for each in passes]


def _drafting(
    evaluated: Evaluated, context: int, speculation: Speculation, name: str
) -> list[_Pass]:
    """Have the questions of each mode answered by a server that drafts, and certainly does so."""
    with _served(evaluated, context, speculation, name) as server:
        passes = [_run(evaluated, server, questions) for questions in evaluated.asked]
    if not any(acceptance.drafts for one in passes for acceptance in one.acceptances):
        raise ValueError(f"vLLM was to draft with {speculation}, and drafted nothing")
    return passes


def _measurement(
    settings: EvaluateSettings,
    drafted: _Pass,
    by_head: _Pass | None,
    plain: _Pass | None = None,
    compare: _Compare | None = None,
) -> Measurement:
    """Bring together what was measured in one thinking mode."""
    head = None
    if by_head is not None:
        losslessness = compare(by_head) if compare else None
        counts = (by_head.acceptances, by_head.timings)
        head = HeadMeasurement(settings.mtp_tokens, *counts, losslessness)
    return Measurement(
        acceptances=drafted.acceptances,
        output_tokens=[len(answered.ids) for answered in drafted.answers],
        with_drafter=drafted.timings,
        without_drafter=plain.timings if plain else None,
        losslessness=compare(drafted) if compare else None,
        mtp=head,
    )


@contextmanager
def _served(
    evaluated: Evaluated, context: int, speculation: Speculation | None, name: str
) -> Iterator[KeptServer]:
    """Serve the target, with what it drafts with or without; it is certain which of the two.

    A server that is started again would count from 0 and be slow at first, so none is.

    Args:
        name: of the server in the name of its log.
    """
    settings, serving = evaluated.settings, evaluated.serving
    options = [*OPTIONS, "--no-enable-prefix-caching"]
    options += ["--max-model-len", str(context)]
    options += ["--trust-remote-code"] if settings.trust_remote_code else []
    options += ["--speculative-config", speculation.option()] if speculation else []
    log = evaluated.log.with_suffix(f".{name}.vllm.log")
    once = replace(serving, restarts=0, concurrency=max(serving.concurrency, *settings.concurrency))
    drafts = f"with {speculation.method}" if speculation else "without a drafter"
    evaluated.say(f"starting vLLM {drafts}")
    with kept_server(evaluated.renderer.target, once, options, log, evaluated.say) as server:
        check_log(log, speculation)
        yield server


def _context(evaluated: Evaluated, drafted_tokens: int) -> int:
    """Return the most tokens of a prompt, its answer and what is drafted beyond its end."""
    prompts = (question.prompt for questions in evaluated.asked for question in questions)
    longest = max(len(prompt) for prompt in prompts)
    return longest + evaluated.settings.max_tokens + drafted_tokens + 1


def _run(evaluated: Evaluated, server: KeptServer, questions: Sequence[Question]) -> _Pass:
    """Have questions answered at each concurrency, domain after domain."""
    settings, domains = evaluated.settings, list(_domains(questions))
    answers, acceptances = _one_by_one(evaluated, server, questions)
    timings = {}
    for level in sorted(settings.concurrency):
        if level == 1:
            by_domain = ((domain, [answers[n] for n in numbers]) for domain, numbers in domains)
            timings[level] = {domain: _timing(those) for domain, those in by_domain}
        else:
            timings[level] = {
                domain: _at_once(evaluated, server, [questions[n] for n in numbers], level)
                for domain, numbers in domains
            }
    return _Pass(answers, timings, acceptances)


def _one_by_one(
    evaluated: Evaluated, server: KeptServer, questions: Sequence[Question]
) -> tuple[list[Answered], list[Acceptance]]:
    """Have each question answered alone, and read what vLLM counted for it."""
    before = Counters.read(server.text("/metrics"))
    first = _ask(evaluated, server, questions[0])  # a server's first one is slower
    before = _counted(server, before, len(first.ids))
    answers, acceptances = [], []
    for question in questions:
        answers.append(_ask(evaluated, server, question))
        now = _counted(server, before, len(answers[-1].ids))
        acceptances.append(now.since(before).drafted)
        before = now
        evaluated.advance(1)
    return answers, acceptances


def _counted(server: KeptServer, before: Counters, tokens: int) -> Counters:
    """Return the counters once they hold an answer of so many tokens."""
    end = time.monotonic() + _PATIENCE
    while True:
        now = Counters.read(server.text("/metrics"))
        counted = now.generated - before.generated
        if counted == tokens:
            return now
        if counted > tokens or time.monotonic() > end:
            raise ValueError(
                f"vLLM counted {counted} tokens for an answer of {tokens}, so what it counted as "
                "accepted may not be of that answer"
            )
        time.sleep(0.01)


def _at_once(
    evaluated: Evaluated, server: KeptServer, questions: Sequence[Question], level: int
) -> Timing:
    """Have some questions answered, so many at a time."""
    start = time.monotonic()
    with ThreadPoolExecutor(level) as pool:
        answers = list(pool.map(partial(_ask, evaluated, server), questions))
    seconds = time.monotonic() - start
    evaluated.advance(len(answers))
    return _timing(answers, seconds)


def _ask(evaluated: Evaluated, server: KeptServer, question: Question) -> Answered:
    sampling = Sampling(evaluated.settings.max_tokens)
    body = completion_request(question.prompt, sampling, evaluated.renderer.end_of_turn_ids)
    start = time.monotonic()
    (choice,) = server.post("/v1/completions", body)["choices"]
    return Answered(tuple(choice["token_ids"]), time.monotonic() - start)


def _compare(
    server: KeptServer,
    questions: Sequence[Question],
    plain: Sequence[Answered],
    drafted: _Pass,
) -> Losslessness:
    """Compare the answers, and ask the target how sure it was where they differ."""

    def gap(number: int, position: int, other: int) -> float | None:
        prompt = [*questions[number].prompt, *plain[number].ids[:position]]
        return log_probability_gap(server, prompt, plain[number].ids[position], other)

    ids = [question.id for question in questions]
    own = [answered.ids for answered in plain]
    return compare_answers(ids, [answered.ids for answered in drafted.answers], own, gap)


def log_probability_gap(
    server: KeptServer, prompt: Sequence[int], own: int, other: int
) -> float | None:
    """Return by how much likelier a served target finds one token after a prompt than another.

    Returns:
        The difference of their log probabilities; None if one is not among the likeliest.
    """
    body = {
        "prompt": list(prompt),
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": _LIKELIEST,
        "return_tokens_as_token_ids": True,
    }
    (choice,) = server.post("/v1/completions", body)["choices"]
    likeliest: dict[str, float] = choice["logprobs"]["top_logprobs"][0]
    one, another = (likeliest.get(f"token_id:{token}") for token in (own, other))
    return None if one is None or another is None else one - another


def _domains(questions: Sequence[Question]) -> Iterator[tuple[str, list[int]]]:
    """Yield each domain with the numbers of its questions."""
    for domain in sorted({question.domain for question in questions}):
        yield domain, [n for n, question in enumerate(questions) if question.domain == domain]


def _timing(answers: Sequence[Answered], seconds: float | None = None) -> Timing:
    """Return the timing of answers that came in so many seconds, or one after the other."""
    latencies = tuple(answered.seconds for answered in answers)
    tokens = sum(len(answered.ids) for answered in answers)
    return Timing(tokens, sum(latencies) if seconds is None else seconds, latencies)
