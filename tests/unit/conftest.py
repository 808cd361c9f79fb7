"""A tiny target for the tests: the toy target after a few steps of training."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from targets.families import qwen3_6

from lib import toy_target
from lib.files import describe_files, write_json
from lib.rendering import Renderer, ThinkingMode
from lib.target import TargetLocation, write_manifest

PLAN = Path(__file__).parents[2] / "resources" / "toy_target"


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a complete target with a real tokenizer, template, weights and manifest."""
    torch.set_num_threads(2)
    folder = tmp_path_factory.mktemp("models") / "tiny"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(toy_target, "STEPS", 2)
        patch.setattr(toy_target, "SEQUENCES_A_STEP", 1)
        patch.setattr(toy_target, "SEQUENCE_LENGTH", 64)
        toy_target.build_toy_target(PLAN, folder, lambda steps: None)
    write_manifest(TargetLocation("tiny", build="toy"), folder, folder / "weights.json")
    return folder


@pytest.fixture(scope="session")
def render(target: Path) -> Callable[..., Renderer]:
    """Give the renderer of the target for a mode; the same one for the same mode."""
    known: dict[ThinkingMode, Renderer] = {}

    def renderer(thinking: bool = False, preserve_thinking: bool = False) -> Renderer:
        mode = ThinkingMode(thinking, preserve_thinking)
        return known.setdefault(mode, Renderer(target, mode))

    return renderer


@pytest.fixture(scope="session")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the real tokenizer, template and configuration of Qwen3.6-27B, no weights."""
    folder = qwen3_6(tmp_path_factory.mktemp("models") / "qwen3_6")
    names = sorted(path.name for path in folder.iterdir())
    files = describe_files(folder, names)
    write_json(folder / "weights.json", {"known_as": "Qwen/Qwen3.6-27B", "files": files})
    return folder
