"""The configuration file of `speculators train` (version 0.9.0) for a drafter."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lib.digest import canonical
from lib.train_settings import TrainerSettings, TrainSettings

Groups = dict[str, dict[str, Any]]
"""Options of the trainer, by its groups."""


@dataclass(frozen=True)
class Places:
    """Where the trainer finds and leaves things.

    Attributes:
        folder: for checkpoints.
        states: folder of hidden states, stored or on their way.
        endpoint: address of the server that is asked for states; "" if all are stored.
        transfer: the trainer's options for the way that states take from a server to it.
        vocabulary: folder of `d2t.npy` and `t2d.npy`, if the drafter has a vocabulary of its own.
        start: folder of the drafter that training starts from, if any.
    """

    target: Path
    tokenized: Path
    folder: Path
    states: Path
    endpoint: str = ""
    transfer: Groups = field(default_factory=dict)
    vocabulary: Path | None = None
    start: Path | None = None


def trainer_config(
    settings: TrainSettings,
    running: TrainerSettings,
    places: Places,
    mask_token_id: int | None,
    train_data_ratio: float,
) -> dict[str, Any]:
    """Return the content of the file, which `speculators train --config` reads unchanged.

    Raises:
        ValueError: `train.options` has an option that is set from another key, or one that the
            trainer does not know.
    """
    ours = _without_nothing(
        {
            "verifier": {
                "verifier_name_or_path": str(places.target),
                "trust_remote_code": settings.trust_remote_code,
            },
            "draft": _draft(settings, places, mask_token_id),
            "data": {
                "data_path": str(places.tokenized),
                "total_seq_len": settings.sequence_length,
                "train_data_ratio": train_data_ratio,
                "hidden_states_dtype": "bfloat16" if settings.gpus else "float32",
                "num_workers": running.data_workers if settings.gpus else 0,
                "max_anchors": settings.anchors,
                **places.transfer.get("data", {}),
            },
            "generation": {"on_missing": "generate", "vllm_endpoint": places.endpoint}
            if places.endpoint
            else {"on_missing": "raise"},
            "loss": {
                "loss_implementation": "fused" if settings.gpus else "eager",
                "loss_fn": _loss(settings.loss),
            },
            "optimizer": {
                "optimizer": settings.optimizer,
                "lr": settings.learning_rate,
                "weight_decay": settings.weight_decay,
            },
            "scheduler": {
                "scheduler_type": settings.schedule,
                "scheduler_warmup_ratio": settings.warmup_share,
            },
            "trainer": {
                "epochs": settings.epochs,
                "checkpoint_freq": 1 / running.checkpoints_per_epoch,
                "log_freq": running.log_every,
                "save_path": str(places.folder),
                "fsdp_shard": running.shard_parameters,
                "gradient_checkpointing": running.gradient_checkpointing,
            },
            "logging": {
                "logger": ",".join(running.loggers),
                "log_dir": str(places.folder / "tracking"),
                "run_name": places.folder.name,
            },
            "dflash": {
                "block_size": settings.block_size,
                "per_position_loss_weight": settings.position_weights,
            },
            "backend": places.transfer.get("backend", {"hidden_states_path": str(places.states)}),
        }
    )
    _check_options(settings.options, ours)
    groups = {
        name: {**ours.get(name, {}), **settings.options.get(name, {})}
        for name in dict.fromkeys((*ours, *settings.options))
    }
    return {"train": {"speculator_type": settings.algorithm, "seed": settings.seed, **groups}}


def _draft(settings: TrainSettings, places: Places, mask_token_id: int | None) -> dict[str, Any]:
    """Return the options of the drafter; one that exists has its shape and vocabulary already."""
    values: dict[str, Any] = {
        "target_layer_ids": settings.target_layer_ids,
        "mask_token_id": mask_token_id,
        "draft_attn_impl": "simple_flex_attention" if settings.gpus else "sdpa",
    }
    if places.start is not None:
        return {"from_pretrained": str(places.start), **values}
    if places.vocabulary is not None:
        values["draft_vocab_size"] = settings.draft_vocabulary
        values["d2t_path"] = str(places.vocabulary / "d2t.npy")
        values["t2d_path"] = str(places.vocabulary / "t2d.npy")
    return {
        "num_layers": settings.layers,
        "sliding_window": settings.sliding_window,
        "full_attention_indices": settings.full_attention_layers,
        "sliding_window_non_causal": _sees_whole_blocks(settings),
        **values,
    }


def _sees_whole_blocks(settings: TrainSettings) -> bool | None:
    """Return whether layers with a window must see their whole block too.

    Layers without one always do while they are trained, and vLLM 0.32 has one answer for all
    layers of these drafters.
    """
    has_one_answer = settings.algorithm in ("dflash", "dflash2")
    return True if has_one_answer and settings.full_attention_layers else None


def _loss(loss: str | Mapping[str, float]) -> str:
    """Return a loss as the trainer reads it: a name, or the JSON of weighted names."""
    return loss if isinstance(loss, str) else canonical(loss)


def _without_nothing(groups: Groups) -> Groups:
    """Leave out what is None: the trainer's own value is meant."""
    return {
        name: {key: value for key, value in group.items() if value is not None}
        for name, group in groups.items()
    }


def _check_options(options: Groups, ours: Groups) -> None:
    """Refuse options that are set from other keys, and those that the trainer does not know."""
    known = _known_options()
    for name, group in options.items():
        if name not in known:
            raise ValueError(f"train.options.{name}: no group of speculators' trainer")
        for key in group:
            if key in ours.get(name, {}) or name == "verifier":
                raise ValueError(
                    f"train.options.{name}.{key}: is set from another key of the configuration"
                )
            if key not in known[name]:
                raise ValueError(
                    f"train.options.{name}.{key}: speculators' trainer has no such option; "
                    f"{name} has {', '.join(sorted(known[name]))}"
                )


def _known_options() -> dict[str, frozenset[str]]:
    """Return the options of the trainer by group, as it declares them."""
    from speculators.train.config import TrainConfig  # slow to import, and rarely needed

    groups: dict[str, Any] = {
        name: info.annotation for name, info in TrainConfig.model_fields.items()
    }
    return {
        name: frozenset(kind.model_fields)
        for name, kind in groups.items()
        if hasattr(kind, "model_fields")
    }
