"""Train the drafter, or go on with an interrupted training."""

import argparse
from pathlib import Path

from lib.console import stage
from lib.serving import Serving
from lib.settings import read_settings
from lib.stamp import require_stamp
from lib.training import Inputs, TrainSettings, train_drafter
from lib.vllm_states import VllmStates


def main() -> None:
    """Run the stage as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", required=True, help="settings as JSON")
    parser.add_argument("--stamp", type=Path, required=True, help="stamp of the data set")
    parser.add_argument("--tokenized", type=Path, required=True, help="counts of the token rows")
    parser.add_argument(
        "--hidden-states",
        type=Path,
        nargs="*",
        required=True,
        help="manifest of the hidden states, if they are stored",
    )
    parser.add_argument("--serving", default="{}", help="how vLLM runs the target, as JSON")
    parser.add_argument("--weights", type=Path, required=True, help="manifest of the target")
    parser.add_argument(
        "--result", type=Path, required=True, help="result to write; the checkpoints go beside it"
    )
    parser.add_argument("--log", type=Path, required=True, help="log file")
    args = parser.parse_args()
    with stage("train_drafter", args.log) as current:
        settings = read_settings(TrainSettings, args.settings)
        require_stamp(args.stamp, args.tokenized.parent, args.weights.parent)
        target = args.weights.parent
        stored = args.hidden_states[0] if args.hidden_states else None
        server = VllmStates(
            *(target, settings.target_layer_ids, "bfloat16", settings.trust_remote_code),
            *(read_settings(Serving, args.serving), args.log.with_suffix(".vllm.log"), current.say),
        )
        with current.progress("steps") as progress:
            result = train_drafter(
                *(settings, Inputs(args.tokenized.parent, target, stored)),
                *(args.result, args.log, current.say, progress.reach, server),
            )
        current.result(
            f"validation acceptance length {result['validation_acceptance_length']:.2f} of "
            f"{settings.block_size}, best epoch {result['best_epoch']}"
        )


if __name__ == "__main__":
    main()
