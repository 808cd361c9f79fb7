"""Measure what the drafter is worth on held-out prompts: acceptance length, and speed if served."""

import argparse
from pathlib import Path

from lib.console import stage
from lib.evaluation import EvaluateSettings, headline, write_evaluation
from lib.measuring import Drafter, measure_drafter
from lib.serving import Serving
from lib.settings import read_settings


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
        drafter = Drafter(args.drafter.parent, args.weights.parent)
        summary = measure_drafter(settings, serving, drafter, args.prompts, args.log, current)
        refused = args.log.with_suffix(".refused.json")
        write_evaluation(settings, summary, args.result, refused)
        current.result(headline(summary))


if __name__ == "__main__":
    main()
