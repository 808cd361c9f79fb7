"""Store the hidden states of the target for every token row."""

import argparse
from pathlib import Path

from lib.console import Stage, stage
from lib.gpus import own_gpus
from lib.hidden_states import HiddenStatesSettings, StatesBackend, extract_hidden_states
from lib.serving import Serving
from lib.settings import read_settings
from lib.stamp import require_stamp


def main() -> None:
    """Run the stage as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", required=True, help="settings as JSON")
    parser.add_argument("--serving", default="{}", help="how vLLM runs the target, as JSON")
    parser.add_argument("--stamp", type=Path, required=True, help="stamp of the data set")
    parser.add_argument("--tokenized", type=Path, required=True, help="counts of the token rows")
    parser.add_argument("--weights", type=Path, required=True, help="manifest of the target")
    parser.add_argument(
        "--manifest", type=Path, required=True, help="manifest to write; the states go beside it"
    )
    parser.add_argument("--log", type=Path, required=True, help="log file")
    args = parser.parse_args()
    with stage("extract_hidden_states", args.log) as current:
        settings = read_settings(HiddenStatesSettings, args.settings)
        serving = read_settings(Serving, args.serving)
        tokenized, target = args.tokenized.parent, args.weights.parent
        require_stamp(args.stamp, tokenized, target)
        backend = states_backend(settings, serving, target, args.log, current)
        with own_gpus(serving.gpus if settings.backend == "vllm" else 0, current.say):
            manifest = extract_hidden_states(
                settings, tokenized, target, args.manifest, backend, current
            )
        current.result(f"{manifest['rows_on_disk']} rows, {manifest['bytes'] / 1e6:.0f} MB")


def states_backend(
    settings: HiddenStatesSettings, serving: Serving, target: Path, log: Path, current: Stage
) -> StatesBackend:
    """Return what computes the states, loading the libraries of that backend only."""
    how = (target, settings.layer_ids, settings.dtype, settings.trust_remote_code)
    if settings.backend == "vllm":
        from lib.vllm_states import VllmStates

        return VllmStates(*how, serving, log.with_suffix(".vllm.log"), current.say)
    from lib.transformers_states import TransformersStates

    return TransformersStates(*how)


if __name__ == "__main__":
    main()
