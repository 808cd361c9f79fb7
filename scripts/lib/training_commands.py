"""The command lines of a training: those of the server of hidden states and of the trainer."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lib.metrics_file import METRICS
from lib.serving import Serving
from lib.train_settings import TrainSettings
from lib.trainer_command import trainer_command, trainer_environment
from lib.vllm_server import server_command
from lib.vllm_states import VllmStates

PORT = 8000
"""Stands for the free port that a stage takes."""

ADDRESS = "FIRST_NODE:29500"
"""Stands for the address of the node that a job of several begins on."""


@dataclass(frozen=True)
class Command:
    """A process that a stage starts.

    Attributes:
        purpose: what it is for.
        environment: variables that it gets besides those of the stage.
    """

    purpose: str
    environment: Mapping[str, str]
    words: Sequence[str]

    def __str__(self) -> str:
        """Return a line for a shell."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        return " ".join([*variables, shlex.join(self.words)])


def states_command(states: VllmStates, target: Path, folder: Path, longest: int) -> Command:
    """Return the command of the server that computes hidden states.

    Args:
        target: folder that is served; that of `states` needs no weights.
        folder: where its files go.
        longest: tokens of the longest row.
    """
    options = [*states.options(folder, longest), *states.serving.command_options()]
    words = server_command(target, str(target), options, PORT)
    return Command("server of hidden states", states.serving.environment(), words)


def training_command(settings: TrainSettings, serving: Serving, checkpoints: Path) -> Command:
    """Return the command of the trainer.

    Args:
        serving: the server that has the first GPUs of the job while the trainer runs; one of none
            if hidden states are stored.
        checkpoints: folder of the training, with its configuration.
    """
    address = ADDRESS if settings.nodes > 1 else ""
    words = trainer_command(
        *(settings.gpus, settings.nodes, checkpoints / "trainer.yaml", checkpoints / METRICS),
        address,
    )
    return Command("trainer", trainer_environment(settings.gpus, serving.gpus), words)
