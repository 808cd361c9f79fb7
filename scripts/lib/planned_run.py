"""A run that has not begun: its settings, its places, and what its training would be given."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lib.configuration import (
    Config,
    drafter_folder,
    stage_settings,
    target_folder,
    trainer_settings,
)
from lib.digest import canonical
from lib.files import read_json
from lib.serving import Serving
from lib.settings import read_settings
from lib.states_transfer import Transfer
from lib.train_settings import TrainerSettings, TrainSettings, resolve_mask_token
from lib.trainer_config import Groups, Places, trainer_config
from lib.training_commands import PORT, Command, states_command, training_command
from lib.vllm_states import VllmStates

UNKNOWN = "DIGEST8"
"""Stands for the eight digits of a folder, which follow from data and weights."""

SIZES = {"bfloat16": 2, "float32": 4}
"""Bytes of a number."""


@dataclass(frozen=True)
class PlannedRun:
    """What the configuration of a run says, and where its stages would work.

    Attributes:
        config: a complete configuration.
        root: the project's folder, which the run's folders are in.
        settings: what decides the drafter.
        running: how the trainer runs.
        serving: how vLLM runs the target.
        stats: counts of the token rows; None before there are any.
    """

    config: Config
    root: Path
    settings: TrainSettings
    running: TrainerSettings
    serving: Serving
    stats: dict[str, Any] | None

    @property
    def results(self) -> Path:
        """Folder of the run."""
        return Path("results", self.config["run"])

    @property
    def tokenized(self) -> Path:
        """Folder of the token rows."""
        return self.results / "tokenized"

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.results / "checkpoints" / UNKNOWN

    @property
    def target(self) -> Path:
        """Folder of the target."""
        return Path(target_folder(self.config))

    @property
    def is_online(self) -> bool:
        """Whether a server gives hidden states while the drafter is trained."""
        return self.settings.hidden_states == "online"

    @property
    def uses_server(self) -> bool:
        """Whether a server computes hidden states at all."""
        return self.is_online or bool(self.config["hidden_states"]["backend"] == "vllm")

    @property
    def number_type(self) -> str:
        """Number type of the target that computes hidden states."""
        return "bfloat16" if self.is_online else str(self.config["hidden_states"]["dtype"])

    @property
    def state_number_size(self) -> int:
        """Bytes of a number of the hidden states, as they are stored or sent."""
        is_fp8 = self.is_online and self.settings.transfer == "fp8"
        return 1 if is_fp8 else SIZES[self.number_type]

    @property
    def train_data_ratio(self) -> float:
        """Share of the rows to train on; before they are counted, about that of conversations."""
        if self.stats is not None:
            return float(self.stats["train_data_ratio"])
        return 1 - float(self.config["merge"]["validation_share"])

    def mask_token_id(self) -> int | None:
        """Return the id of the mask token; None if there is none, or none can be known yet.

        Raises:
            ValueError: it cannot be the mask token.
        """
        target, tokenized = self.root / self.target, self.root / self.tokenized
        if (target / "tokenizer.json").is_file() and (tokenized / "token_freq.pt").is_file():
            return resolve_mask_token(self.settings, target, tokenized)
        token = self.settings.mask_token
        return token if isinstance(token, int) else None

    def trainer_content(self) -> dict[str, Any]:
        """Return the content of the trainer's configuration file.

        Raises:
            ValueError: `train.options` has an option that it must not have.
        """
        return self._content(self._places())

    def new_drafter_content(self) -> dict[str, Any]:
        """Return the same for a drafter of this shape that starts from no other one.

        Raises:
            ValueError: `train.options` has an option that it must not have.
        """
        return self._content(replace(self._places(), start=None))

    def commands(self, target: Path | None, longest: int) -> Iterator[Command]:
        """Yield the commands of server and trainer in the order of their start.

        Args:
            target: folder with the target's `config.json`; without it only the trainer's.
            longest: tokens of the longest row.
        """
        if self.uses_server and target is not None:
            states = VllmStates(
                *(target, self.settings.target_layer_ids, self.number_type),
                *(self.settings.trust_remote_code, self.serving),
                *(self.results / "logs/server.vllm.log", lambda text: None),
                transfer=self._transfer() if self.is_online else Transfer(),
            )
            folder = (self.root / self._on_their_way()).resolve()
            yield states_command(states, self.target, folder, longest)
        beside = self.serving if self.is_online else Serving()
        yield training_command(self.settings, beside, self.checkpoints)

    def _content(self, places: Places) -> dict[str, Any]:
        return trainer_config(
            *(self.settings, self.running, places, self.mask_token_id(), self.train_data_ratio)
        )

    def _places(self) -> Places:
        start = drafter_folder(self.config, "train", "from")
        states, endpoint = self.results / "hidden_states" / UNKNOWN, ""
        transfer: Groups = {}
        if self.is_online:
            states, endpoint = self._on_their_way(), f"http://127.0.0.1:{PORT}/v1"
            transfer = self._transfer().trainer_options(states)
        has_own_vocabulary = self.settings.draft_vocabulary is not None and not start
        return Places(
            *(self.target, self.tokenized, self.checkpoints, states),
            endpoint=endpoint,
            transfer=transfer,
            vocabulary=self.checkpoints / "vocabulary" if has_own_vocabulary else None,
            start=Path(start) if start else None,
        )

    def _transfer(self) -> Transfer:
        return Transfer(self.settings.transfer, self.running.mooncake)

    def _on_their_way(self) -> Path:
        """Return where hidden states lie until they are read."""
        if self.is_online:
            return self.checkpoints.with_name(f".states-{UNKNOWN}")
        return self.results / "hidden_states" / ".unchecked"


def planned_run(config: Config, root: Path) -> PlannedRun:
    """Return the run of a complete configuration in a project's folder."""
    stats = root / "results" / config["run"] / "tokenized/stats.json"
    return PlannedRun(
        config,
        root,
        read_settings(TrainSettings, canonical(stage_settings(config, "train_drafter"))),
        read_settings(TrainerSettings, canonical(trainer_settings(config))),
        read_settings(Serving, canonical(config["serving"])),
        read_json(stats) if stats.is_file() else None,
    )
