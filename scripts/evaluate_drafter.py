"""Measure what the drafter is worth on held-out prompts: acceptance length, and speed if served."""

import argparse
from pathlib import Path

from lib.console import Stage, stage
from lib.drafter_config import drafted_tokens
from lib.evaluation import (
    EvaluateSettings,
    Measurement,
    Question,
    evaluation,
    headline,
    read_questions,
    write_evaluation,
)
from lib.files import read_json
from lib.gpus import own_gpus
from lib.rendering import Renderer, ThinkingMode
from lib.served_acceptance import Evaluated, answers_to_make, measure_served
from lib.serving import Serving
from lib.settings import read_settings
from lib.simulation import simulate


def main() -> None:
    """Run the stage as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", required=True, help="settings as JSON")
    parser.add_argument("--serving", default="{}", help="how vLLM runs the target, as JSON")
    parser.add_argument("--drafter", type=Path, required=True, help="config.json of the drafter")
    parser.add_argument("--weights", type=Path, required=True, help="manifest of the target")
    parser.add_argument(
        "--prompts", type=Path, nargs="*", required=True, help="files of held-out prompts"
    )
    parser.add_argument("--result", type=Path, required=True, help="result to write")
    parser.add_argument("--log", type=Path, required=True, help="log file")
    args = parser.parse_args()
    with stage("evaluate_drafter", args.log) as current:
        settings = read_settings(EvaluateSettings, args.settings)
        serving = read_settings(Serving, args.serving)
        mode = ThinkingMode(settings.thinking, settings.preserve_thinking)
        renderer = Renderer(args.weights.parent, mode, settings.trust_remote_code)
        questions = read_questions(args.prompts, settings, renderer)
        measured = measure(
            settings, serving, questions, args.drafter.parent, renderer, args.log, current
        )
        drafted = drafted_tokens(read_json(args.drafter))
        summary = evaluation(settings, drafted, questions, measured)
        refused = args.log.with_suffix(".refused.json")
        write_evaluation(settings, summary, args.result, refused)
        current.result(headline(summary))


def measure(
    settings: EvaluateSettings,
    serving: Serving,
    questions: list[Question],
    drafter: Path,
    renderer: Renderer,
    log: Path,
    current: Stage,
) -> Measurement:
    """Measure the drafter in this process or in a server."""
    if settings.backend == "simulate":
        with current.progress("prompts", len(questions)) as progress:
            return simulate(questions, settings, drafter, renderer, progress.advance)
    total = answers_to_make(settings, len(questions))
    with own_gpus(serving.gpus, current.say), current.progress("answers", total) as progress:
        evaluated = Evaluated(
            settings, questions, renderer, serving, log, current.say, progress.advance
        )
        return measure_served(evaluated, drafter)


if __name__ == "__main__":
    main()
