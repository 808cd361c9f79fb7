"""Train the drafter, or go on with an interrupted training."""

import argparse
from pathlib import Path

from lib.console import Stage, stage
from lib.gpus import own_gpus
from lib.serving import Serving
from lib.settings import read_settings
from lib.stamp import require_stamp
from lib.states_transfer import Transfer
from lib.train_settings import TrainerSettings, TrainSettings
from lib.training import Inputs, StatesServer, train_drafter


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
    parser.add_argument("--trainer", default="{}", help="how the trainer runs, as JSON")
    parser.add_argument(
        "--start", type=Path, nargs="*", default=[], help="manifest of a drafter to start from"
    )
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
        running = read_settings(TrainerSettings, args.trainer)
        start = args.start[0] if args.start else None
        inputs = Inputs(args.tokenized.parent, target, stored, start)
        log = args.log.with_suffix(".vllm.log")
        serving = read_settings(Serving, args.serving)
        server = None if stored else states_server(settings, running, serving, target, log, current)
        gpus = settings.gpus + (server.gpus if server else 0)
        with own_gpus(gpus, current.say):
            result = train_drafter(
                settings, running, inputs, args.result, args.log, current, server
            )
        best = f"best epoch {result['best_epoch']}"
        if (length := result["validation_acceptance_length"]) is not None:
            best = f"validation acceptance length {length:.2f} of {settings.block_size}, {best}"
        current.result(best)


def states_server(
    settings: TrainSettings,
    running: TrainerSettings,
    serving: Serving,
    target: Path,
    log: Path,
    current: Stage,
) -> StatesServer:
    """Return the server that gives hidden states on the way."""
    from lib.vllm_states import VllmStates  # brings PyTorch, which is not needed otherwise

    transfer = Transfer(settings.transfer, running.mooncake)
    layers, trust = settings.target_layer_ids, settings.trust_remote_code
    return VllmStates(target, layers, "bfloat16", trust, serving, log, current.say, transfer)


if __name__ == "__main__":
    main()
