"""Whether speculators' trainer takes a configuration as it is meant."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from pydantic import ValidationError
from speculators.train.config import TrainConfig


@dataclass(frozen=True)
class CheckedConfig:
    """A configuration as the trainer reads it.

    Attributes:
        config: with every value that the file leaves out.
        warnings: what the trainer says of it.
    """

    config: TrainConfig
    warnings: tuple[str, ...]


def check_trainer_config(content: Mapping[str, Any]) -> CheckedConfig:
    """Have the trainer read the content of its configuration file, and look at what it understood.

    Raises:
        ValueError: it refuses the content, understands a value otherwise, or reads another one
            from what it writes itself.
    """
    with TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        path = Path(folder, "trainer.yaml")
        config = _read(path, yaml.safe_dump(dict(content), sort_keys=False))
        again = _read(path, config.dump_yaml())
    understood = config.flatten()
    for group, values in content["train"].items():
        for key, value in values.items() if isinstance(values, Mapping) else [(group, values)]:
            if understood.get(key) != value:
                raise ValueError(
                    f"speculators' trainer reads {key} as {understood.get(key)!r}, not {value!r}"
                )
    if again.flatten() != understood:
        raise ValueError("speculators' trainer does not read what it writes itself")
    return CheckedConfig(config, tuple(dict.fromkeys(str(warning.message) for warning in said)))


def _read(path: Path, text: str) -> TrainConfig:
    path.write_text(text, encoding="utf-8")
    try:
        return TrainConfig.from_sources(cli={}, config_path=str(path), argv=[])
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"speculators' trainer refuses {place or 'it'}: {message}") from error
