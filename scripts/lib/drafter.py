"""The drafter's folder: what a server loads, and what a reader wants to know about it."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.files import atomic_path, read_json, write_json, write_text


@dataclass(frozen=True)
class ExportSettings:
    """What the model card says besides the figures: the thinking mode."""

    thinking: bool


def export_drafter(
    settings: ExportSettings, training: Path, weights: Path, folder: Path
) -> dict[str, Any]:
    """Write the best checkpoint as a model folder: `config.json`, weights, and a model card.

    Args:
        training: `train.json`.
        weights: `weights.json` of the target.
        folder: where the drafter goes.

    Returns:
        The content of `train.json`.

    Raises:
        ValueError: the checkpoint says that it rotates only a part of each head.
    """
    result: dict[str, Any] = read_json(training)
    checkpoint = training.parent / result["best_checkpoint"]
    target = read_json(weights)["known_as"]
    config = read_json(checkpoint / "config.json")
    # Points at a code file of the checkpoint; servers know the architecture by its name.
    config.pop("auto_map", None)
    config["speculators_config"]["verifier"]["name_or_path"] = target
    _require_plain_rotation(config)
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_path(folder / "model.safetensors") as partial:
        shutil.copyfile(checkpoint / "model.safetensors", partial)
    write_json(folder / "config.json", config)
    write_text(folder / "README.md", _model_card(result, config, target, settings.thinking))
    return result


def _require_plain_rotation(config: dict[str, Any]) -> None:
    """Leave out what a target that sees images says of positions in three dimensions.

    Speculators copies it, but trains with plain positions over the whole head. For text both are
    the same, and a server that follows the copy may rotate in another way.

    Raises:
        ValueError: only a part of each head is rotated.
    """
    rope = config["transformer_layer_config"].get("rope_parameters") or {}
    for name in ("mrope_section", "mrope_interleaved"):
        rope.pop(name, None)
    if (share := rope.pop("partial_rotary_factor", 1.0)) != 1.0:
        raise ValueError(
            f"the drafter's configuration rotates {share} of each head, where it was trained with "
            "all of it; speculators 0.9.0 is needed"
        )


def _model_card(result: dict[str, Any], config: dict[str, Any], target: str, thinking: bool) -> str:
    algorithm = config["speculators_config"]["algorithm"]
    drafted = config["speculators_config"]["proposal_methods"][0]["speculative_tokens"]
    serve = (
        f"vllm serve {target} --speculative-config "
        f'\'{{"method": "{algorithm}", "model": "drafter", "num_speculative_tokens": {drafted}}}\' '
        f"--default-chat-template-kwargs '{{\"enable_thinking\": {str(thinking).lower()}}}'"
    )
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    return f"""# Drafter for {target}

A {algorithm} drafter for speculative decoding: it proposes {drafted} tokens at a time, which the
target checks in one step.

| | |
|---|---|
| target | `{target}` |
| thinking mode | {"on" if thinking else "off"} |
| target layers read | {", ".join(map(str, config["aux_hidden_state_layer_ids"]))} (0: embeddings) |
| block size | {config["block_size"]} |
| training rows | {result["train_rows"]} |
| validation rows | {result["validation_rows"]} |
| supervised tokens | {result["supervised_tokens"]} |
| best epoch | {result["best_epoch"]} |
| acceptance length on validation rows | {result["validation_acceptance_length"]:.2f} of \
{config["block_size"]} |
| made with | {versions} |

Serve it with the thinking mode that it was trained for:

```sh
{serve}
```
"""
