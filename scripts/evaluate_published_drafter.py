"""Measure a drafter that others have published as the run's own is, to compare the two."""

import argparse
from pathlib import Path

from lib.console import stage
from lib.evaluation import EvaluateSettings, headline
from lib.files import read_json, write_json
from lib.measuring import Drafter, measure_drafter
from lib.serving import Serving
from lib.settings import read_settings


def main() -> None:
    """Run the stage as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", required=True, help="settings as JSON")
    parser.add_argument("--serving", default="{}", help="how vLLM runs the target, as JSON")
    parser.add_argument("--drafter", type=Path, required=True, help="manifest of the drafter")
    parser.add_argument("--weights", type=Path, required=True, help="manifest of the target")
    parser.add_argument(
        "--prompts", type=Path, nargs="*", required=True, help="files of held-out prompts"
    )
    parser.add_argument("--result", type=Path, required=True, help="result to write")
    parser.add_argument("--log", type=Path, required=True, help="log file")
    args = parser.parse_args()
    with stage("evaluate_published_drafter", args.log) as current:
        settings = read_settings(EvaluateSettings, args.settings)
        serving = read_settings(Serving, args.serving)
        manifest = read_json(args.drafter)
        known = {key: manifest[key] for key in ("known_as", "revision", "format", "algorithm")}
        drafter = Drafter(args.drafter.parent, args.weights.parent, known)
        summary = measure_drafter(settings, serving, drafter, args.prompts, args.log, current)
        write_json(args.result, summary)
        current.result(f"{known['known_as']}: {headline(summary)}")


if __name__ == "__main__":
    main()
