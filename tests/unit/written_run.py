"""What the stages of a run wrote down, made up: counts that go together, as large as wanted."""

import random
from pathlib import Path
from typing import Any

from lib.acceptance import Acceptance
from lib.conversation import REASONS
from lib.drop_reasons import DROP_REASONS
from lib.evaluation import EvaluateSettings, Measurement, Question, evaluation
from lib.evaluation_figures import FIGURES, draw_evaluation
from lib.figure_style import write_figure
from lib.files import write_json
from lib.losslessness import Difference, Losslessness
from lib.report import ReportSettings, RunFiles
from lib.response_totals import FAILURES
from lib.row_counts import SPLITS
from lib.row_histograms import RowHistograms
from lib.speed import Timing
from lib.token_rows import ROW_REASONS

DRAFTED = 7
HOSTILE = (
    "</script><script>alert(1)</script><math><mtext></mtext></math> $x_{$ \u202eright to left"
    " \u05e9\u05dc\u05d5\u05dd <|im_end|> &amp; {{ run }} " + "x" * 400
)


def write_run(
    folder: Path,
    rows: int,
    sources: int = 12,
    regenerated: bool = True,
    served: bool = True,
    details: str = "text",
    domains: tuple[str, ...] = ("chat", "code", "math", "tools"),
) -> tuple[ReportSettings, RunFiles]:
    """Write the files that a report is made of.

    Args:
        rows: token rows, about.
        regenerated: whether the target answered.
        served: whether speed, the head and the published drafter were measured.
        details: text that stands in sample rows and in the configuration.
    """
    chance = random.Random(0)
    names = [f"source_{number:02}" for number in range(sources)]
    counts = [_source(chance, name, rows // sources) for name in names]
    merged = _merged(chance, counts)
    responses = _responses(chance, merged) if regenerated else None
    tokenized = _tokenized(chance, merged, responses)
    files = {
        **{f"sources/{one['source']}.stats.json": one for one in counts},
        "merged/stats.json": merged,
        "tokenized/stats.json": tokenized,
        "verified_rows.json": _samples(names, details),
        "verified.json": {"checks": [details], "audited_rows": 200, "content": "0123456789abcdef"},
        "train.json": _training(chance),
        "drafter/config.json": _drafter(),
        "evaluation.json": measured(chance, domains, served),
    }
    if responses is not None:
        files["responses/stats.json"] = responses
    if served:
        files["evaluation.published.json"] = measured(random.Random(1), domains, False)
    for name, content in files.items():
        write_json(folder / name, content)
    benchmark = folder / "benchmarks/fetch_source/source_00.tsv"
    benchmark.parent.mkdir(parents=True)
    benchmark.write_text("s\th:m:s\tmax_rss\n61.5\t0:01:01\tNA\n")
    figures = [folder / f"{name}.svg" for name in FIGURES[: 3 if served else 2]]
    for path in figures:
        write_figure(
            lambda name=path.stem: draw_evaluation(name, files["evaluation.json"], None), path
        )
    configuration = {
        "target": {"name": "target", "hub": {"repo": "some/target", "revision": "f" * 40}},
        "sources": [{"name": name, "format": "sharegpt", "files": [details]} for name in names],
        "evaluate": {
            "minimum_acceptance_length": {"all": 1.5},
            "prompts": [details],
            "prompt_sets": [{"name": "gsm8k", "domain": "math", "files": [details]}],
        },
    }
    return ReportSettings("made-up", configuration), RunFiles(
        sources=[folder / f"sources/{name}.stats.json" for name in names],
        merged=folder / "merged/stats.json",
        responses=folder / "responses/stats.json" if regenerated else None,
        rows=folder / "tokenized/stats.json",
        samples=folder / "verified_rows.json",
        stamp=folder / "verified.json",
        training=folder / "train.json",
        drafter=folder / "drafter/config.json",
        evaluation=folder / "evaluation.json",
        published=folder / "evaluation.published.json" if served else None,
        figures=figures,
        benchmarks=folder / "benchmarks",
    )


def _shared_out(chance: random.Random, amount: int, names: list[str]) -> dict[str, int]:
    """Return counts that add up to an amount, none of them 0."""
    cuts = sorted(chance.randint(0, amount) for _ in names[1:])
    shares = [high - low for low, high in zip([0, *cuts], [*cuts, amount], strict=True)]
    return {name: share for name, share in zip(names, shares, strict=True) if share}


def _source(chance: random.Random, name: str, rows: int) -> dict[str, Any]:
    rejected = chance.randint(0, rows // 3)
    written = rows - rejected
    return {
        "source": name,
        "rows_in": rows,
        "rows_written": written,
        "rows_rejected": rejected,
        "conversations": written - chance.randint(0, written // 10),
        "rejected_by_reason": _shared_out(chance, rejected, [*REASONS]),
        "repaired": {},
    }


def _merged(chance: random.Random, counts: list[dict[str, Any]]) -> dict[str, Any]:
    fates = {}
    for one in counts:
        kept = one["conversations"] - (dropped := chance.randint(0, one["conversations"] // 4))
        validation = kept // 20
        fates[one["source"]] = {
            **_shared_out(chance, dropped, [*DROP_REASONS]),
            **{"train": kept - validation, "validation": validation},
        }
    names = list(fates)
    overlap: dict[str, dict[str, int]] = {name: {} for name in names}
    for number, name in enumerate(names):
        overlap[name][name] = 1000
        for other in names[number + 1 : number + 3]:
            overlap[name][other] = overlap[other][name] = chance.randint(1, 900)
    return {"sources": fates, "overlap": overlap}


def _kept(fates: dict[str, int]) -> int:
    return fates["train"] + fates["validation"]


def _responses(chance: random.Random, merged: dict[str, Any]) -> dict[str, Any]:
    sources = {}
    for name, fates in merged["sources"].items():
        failed = chance.randint(0, _kept(fates) // 10)
        answered = _kept(fates) - failed
        sources[name] = {
            **{"conversations_in": _kept(fates), "answered": answered, "failed": failed},
            "records": answered + chance.randint(0, answered // 5),
        }
    total = {key: sum(one[key] for one in sources.values()) for key in next(iter(sources.values()))}
    reasons = _shared_out(chance, total["failed"], [*FAILURES])
    return {**total, "failed_by_reason": reasons, "sources": sources}


def _tokenized(
    chance: random.Random, merged: dict[str, Any], responses: dict[str, Any] | None
) -> dict[str, Any]:
    sources: dict[str, Any] = {}
    histograms = RowHistograms()
    for name, fates in merged["sources"].items():
        came = _kept(fates) if responses is None else responses["sources"][name]["records"]
        turns = came + chance.randint(0, came)
        lost = _shared_out(chance, turns // 20, [*ROW_REASONS])
        rows = turns - sum(lost.values()) - chance.randint(0, turns // 30)
        sides = {}
        for split, share in zip(SPLITS, (rows - rows // 20, rows // 20), strict=True):
            numbers = {"conversations": came, "rows": share, "tokens": 900 * share}
            sides[split] = {**numbers, "supervised_tokens": 300 * share, "longest": 4096}
        sources[name] = {
            **{"conversations_in": came, "turns": turns, "turns_lost_by_reason": lost},
            **sides,
        }
    for _ in range(2000):
        length = min(4096, 1 + int(chance.expovariate(1 / 900)))
        histograms.count(length, max(1, length // chance.randint(1, 9)), chance.randint(1, 5))
    lost = {
        reason: sum(one["turns_lost_by_reason"].get(reason, 0) for one in sources.values())
        for reason in ROW_REASONS
    }
    sums = {
        f"{split}_rows": sum(one[split]["rows"] for one in sources.values()) for split in SPLITS
    }
    rows = sum(sums.values())
    return {
        "conversations_in": sum(one["conversations_in"] for one in sources.values()),
        "turns_in": sum(one["turns"] for one in sources.values()),
        "turns_lost_by_reason": {reason: count for reason, count in lost.items() if count},
        **{"rows": rows, **sums, "tokens": 900 * rows, "supervised_tokens": 300 * rows},
        **{"histograms": histograms.stats(), "sources": sources},
    }


def _samples(names: list[str], details: str) -> list[dict[str, Any]]:
    stretches = [
        {"is_supervised": False, "beginning": details, "left_out": 0, "end": ""},
        {"is_supervised": True, "beginning": details, "left_out": 12345, "end": details},
    ]
    numbers = {"split": "train", "tokens": 900, "supervised_tokens": 300, "text": stretches}
    return [
        {"row": row, "id": f"{name}-0", "source": name, **numbers} for row, name in enumerate(names)
    ]


def _training(chance: random.Random) -> dict[str, Any]:
    steps = [
        {
            **{"step": step, "epoch": 1 + step // 250, "loss": 2 / (1 + step / 100)},
            **{"acceptance_length": 1 + step / 300, "learning_rate": 0.001 * (1 - step / 1000)},
            "tokens_per_second": chance.gauss(40000, 900),
        }
        for step in range(1000)
    ]
    places = {f"position_{place}_acc_epoch": 0.9**place for place in range(1, DRAFTED + 1)}
    epochs = [
        {"loss_epoch": 2 / (1 + epoch), "eal_epoch": 2.0 + epoch, **places} for epoch in range(4)
    ]
    return {
        **{"best_epoch": 4, "validation_acceptance_length": 5.0, "validation_by_epoch": epochs},
        **{
            "settings": {"epochs": 4, "block_size": DRAFTED + 1},
            "versions": {"speculators": "0.9.0"},
            "steps": steps,
        },
    }


def _drafter() -> dict[str, Any]:
    return {
        "speculators_config": {
            "algorithm": "dflash",
            "proposal_methods": [{"speculative_tokens": DRAFTED}],
        },
        "sliding_window_non_causal": False,
        "transformer_layer_config": {"num_hidden_layers": 1, "layer_types": ["full_attention"]},
    }


def measured(chance: random.Random, domains: tuple[str, ...], served: bool) -> dict[str, Any]:
    """Return the content of an `evaluation.json`, with all that is optional in it if served."""
    questions = [
        Question(f"{domain}-{number}", domain, (1,)) for domain in domains for number in range(30)
    ]
    acceptances = []
    for question in questions:
        good = 0.5 + 0.1 * domains.index(question.domain) / len(domains)
        drafts = chance.randint(10, 60)
        by_position = [drafts]
        for _ in range(DRAFTED):
            by_position.append(sum(chance.random() < good for _ in range(by_position[-1])))
        acceptances.append(Acceptance(drafts, tuple(by_position[1:])))
    settings = EvaluateSettings(False, False, "vllm" if served else "simulate")
    timings = [
        {
            concurrency: {
                domain: Timing(3000, seconds / concurrency**0.7, (seconds / 30,) * 30)
                for domain in domains
            }
            for concurrency in (1, 8, 32)
        }
        for seconds in (20.0, 38.0)
    ]
    differences = (Difference("chat-3", 17, 5, 9, 0.125), Difference("chat-4", 3, None, 9, None))
    made = Measurement(
        acceptances,
        [100] * len(questions),
        *(timings if served else ({}, None)),
        Losslessness(len(questions), differences) if served else None,
    )
    result = evaluation(settings, DRAFTED, questions, made)
    if served:
        head = {"acceptance_length": 1.8, "acceptance_length_interval": [1.7, 1.9]}
        head |= {"acceptance_by_position": [0.8], "drafts": 1000, "accepted": 800}
        for part in (result["all"], *result["domains"].values()):
            part["mtp"] = head
            for entry in part["speed"]:
                entry["mtp"] = entry["without_drafter"]
                entry["mtp_ratio"] = entry["ratio"]
        keys = ("all", "domains", "losslessness", "prompts")
        result["other_mode"] = {"thinking": True, **{key: result[key] for key in keys}}
    return result
