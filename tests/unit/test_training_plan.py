"""What a plan says of a training, compared with real ones and with what others have published."""

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from rows import tokenize_into
from speculators import SpeculatorModel
from speculators.train.config import TrainConfig
from transformers import AutoConfig, Qwen3_5ForConditionalGeneration

from lib.arrow_rows import read_token_rows
from lib.configuration import Config, complete, load_schema, stage_settings, target_folder
from lib.console import Stage
from lib.digest import canonical
from lib.hidden_states import HiddenStatesSettings, extract_hidden_states
from lib.jsonl import jsonl_writer, read_jsonl
from lib.model_sizes import target_size
from lib.planned_run import UNKNOWN
from lib.serving import Serving
from lib.settings import read_settings
from lib.states_transfer import Transfer
from lib.train_settings import TrainerSettings, TrainSettings
from lib.trainer_command import trainer_command, trainer_environment
from lib.training import Inputs, train_drafter
from lib.training_memory import GIB
from lib.training_plan import Assumptions, Plan, plan_training
from lib.transformers_states import TransformersStates
from lib.vllm_server import server_command
from lib.vllm_states import VllmStates

ROOT = Path(__file__).parents[2]
TOY, RECIPE = Path("config/config.yaml"), Path("config/qwen3.6-27b.yaml")
H100_GIB = 79.6
QWEN3_8B = {
    **{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 151936},
    **{"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36},
    **{"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128},
    **{"max_position_embeddings": 40960, "tie_word_embeddings": False},
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a project without results; the tests work in its folder."""
    for name in ("config", "resources"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def planned(configuration: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    line = [sys.executable, str(ROOT / "scripts/plan_training.py"), "--configfile"]
    return subprocess.run(
        [*line, str(configuration), *options], capture_output=True, text=True, check=False
    )


def figures(text: str) -> dict[str, list[str]]:
    """Return what a plan says, by label: the value, and how it comes about."""
    lines = (re.split(r"\s{2,}", line) for line in text.splitlines())
    return {label: rest for label, *rest in lines if rest}


def configured(project: Path, path: Path, **changes: dict[str, Any]) -> Config:
    """Return a complete configuration with other values in some sections."""
    raw = yaml.safe_load((project / path).read_text())
    raw |= {name: {**raw.get(name, {}), **values} for name, values in changes.items()}
    return complete(raw, load_schema(project / "config/schema.yaml"), project)


def plan_of(
    project: Path, path: Path = RECIPE, given: Assumptions | None = None, **changes: dict[str, Any]
) -> Plan:
    return plan_training(configured(project, path, **changes), project, given or Assumptions())


def known_as_qwen3_8b(project: Path) -> Path:
    folder = project / "qwen3-8b"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(QWEN3_8B))
    return folder


def test_the_recipe_says_what_its_plan_says(project: Path) -> None:
    result = planned(RECIPE)
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("Warnings\n--------\nnone\n")
    known = figures(result.stdout)
    lines = (project / RECIPE).read_text().splitlines()
    comments = " ".join(line.partition("#")[2].strip() for line in lines if "#" in line)
    for label in (
        *("weights", "cache", "tokens in the cache", "parameters trained", "trainer, all"),
        *("logits", "activations", "tokens a step", "blocks a step", "steps an epoch"),
        *("supervised tokens anchored", "after all epochs", "hidden states a token", "training"),
        *("a checkpoint", "all checkpoints", "batches in advance", "between checkpoints"),
    ):
        assert known[label][0] in comments, label
    for label in ("server", "trainer"):
        assert known[label][0].split()[0] in comments, label
    assert known["stored"][1].removesuffix(" if they were") in comments
    ids = [int(word) for word in known["target_layer_ids"][0].split()]
    assert ids == yaml.safe_load((project / RECIPE).read_text())["train"]["target_layer_ids"]
    assert [int(word) + 1 for word in known["DFlash paper, z-lab"][0].split()] == ids


def test_the_recipe_shares_out_the_gpus_of_one_machine(project: Path) -> None:
    server, trainer = (command.environment for command in plan_of(project).commands)
    both = server["CUDA_VISIBLE_DEVICES"].split(",") + trainer["CUDA_VISIBLE_DEVICES"].split(",")
    assert both == [str(number) for number in range(8)]


def test_what_the_recipe_leaves_out_would_not_fit(project: Path) -> None:
    recipe = plan_of(project)
    lines = (project / RECIPE).read_text()

    def changed(section: str, **values: object) -> Plan:
        return plan_of(project, **{section: values})

    kept = changed("trainer", gradient_checkpointing=False)
    assert any("trainer.gradient_checkpointing" in warning for warning in kept.warnings)
    activations = {part.name: part for part in memory_of(kept).parts}["activations"]
    assert f"{activations.size / GIB:.1f} GiB" in lines
    assert f"{memory_of(changed('train', anchors=2048)).size / GIB:.1f} GiB" in lines
    longer = changed("train", sequence_length=65536)
    assert memory_of(longer).size < 0.95 * 96 * GIB
    assert longer.amounts is not None and recipe.amounts is not None
    assert f"{longer.amounts.anchored_share:.1%}" in lines
    assert f"{longer.amounts.batches_size / GIB:.1f} GiB" in lines
    shared = changed("trainer", shard_parameters=True)
    assert memory_of(shared).size < memory_of(recipe).size


def memory_of(plan: Plan) -> Any:
    assert plan.trainer_memory is not None
    return plan.trainer_memory


def test_an_8b_target_fits_as_others_have_found(project: Path) -> None:
    # speculators#979: 80 GB hold 1,536 anchors on 65,536 tokens, more run out of memory.
    folder = known_as_qwen3_8b(project)
    train = {"target_layer_ids": [2, 10, 18, 26, 34], "sequence_length": 65536, "gpus": 4}

    def fits(anchors: int) -> bool:
        config = configured(
            project,
            RECIPE,
            target={"hub": {"repo": "Qwen/Qwen3-8B", "revision": "0" * 40}},
            train={**train, "anchors": anchors, "full_attention_layers": []},
            trainer={"gradient_checkpointing": False},
        )
        plan = plan_training(config, project, Assumptions(gpu_memory_gib=H100_GIB), folder)
        return not any("the trainer needs" in warning for warning in plan.warnings)

    assert fits(1536)
    assert not fits(2048)


def test_rates_decide_the_hours(project: Path) -> None:
    slow = plan_of(project)
    fast = plan_of(project, given=Assumptions(teraflops=500))
    assert slow.hours is not None and fast.hours is not None
    assert fast.hours == pytest.approx(slow.hours / 2)
    measured = plan_of(project, given=Assumptions(server_rate=1000, trainer_rate=1000))
    tokens = measured.rows.tokens + measured.rows.validation_tokens
    assert measured.rates.trainer == 4 * 1000
    assert measured.hours == pytest.approx(3 * tokens / 1000 / 3600)


def test_a_target_that_is_not_at_hand_is_planned_as_far_as_it_goes(project: Path) -> None:
    hub = {"repo": "Qwen/Qwen3-8B", "revision": "0" * 40}
    config = configured(project, RECIPE, target={"hub": hub})
    plan = plan_training(config, project, Assumptions())
    assert "--target-config" in plan.unknown[0]
    assert plan.drafter is None and plan.trainer_memory is None and plan.hours is None
    assert [command.purpose for command in plan.commands] == ["trainer"]
    folder = known_as_qwen3_8b(project)
    with pytest.raises(ValueError, match=r"train\.target_layer_ids: .* must be below 36"):
        plan_training(config, project, Assumptions(), folder)


def test_the_toy_run_is_planned_without_a_gpu(project: Path) -> None:
    result = planned(TOY, "--target-config", "resources/toy_target/config.json")
    assert result.returncode == 0, result.stderr
    known = figures(result.stdout)
    settings = yaml.safe_load((project / TOY).read_text())["train"]
    assert known["tokens a step"][0] == str(settings["sequence_length"])
    assert "the trainer runs on the processor" in result.stdout
    assert "CUDA_VISIBLE_DEVICES" not in result.stdout


def test_a_wrong_configuration_ends_with_one_line(project: Path) -> None:
    raw = yaml.safe_load((project / TOY).read_text())
    raw["train"]["layers"] = "five"
    (project / "wrong.yaml").write_text(yaml.safe_dump(raw))
    result = planned(Path("wrong.yaml"))
    assert result.returncode == 1
    assert result.stderr.startswith("configuration: train.layers: must be integer")
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"options": {"draft": {"nothing": 1}}}, r"train\.options\.draft\.nothing"),
        ({"loss": "kl_div"}, "speculators' trainer refuses it: .*dpace requires"),
    ],
)
def test_what_the_trainer_would_refuse_is_refused(
    project: Path, train: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        plan_of(project, TOY, train=train)


def test_several_nodes_are_started_by_slurm(project: Path) -> None:
    changes = {
        "hidden_states": {"mode": "offline", "backend": "vllm"},
        "train": {"nodes": 2},
    }
    plan = plan_of(project, **changes)
    server, trainer = plan.commands
    assert trainer.words[0] == "srun"
    assert trainer.environment["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    assert server.environment["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"  # it has ended by then
    one = plan_of(project, hidden_states=changes["hidden_states"])
    assert plan.amounts is not None and one.amounts is not None
    assert plan.amounts.step_tokens == 2 * one.amounts.step_tokens
    assert plan.states_hours is not None
    tokens = plan.rows.tokens + plan.rows.validation_tokens
    assert plan.amounts.states_size == tokens * plan.amounts.state_size


@pytest.mark.parametrize("algorithm", ["dflash2", "dspark", "eagle3"])
def test_every_kind_of_drafter_has_a_size(project: Path, algorithm: str) -> None:
    raw = yaml.safe_load((project / RECIPE).read_text())
    kept = ("target_layer_ids", "mask_token", "sequence_length", "anchors", "gpus")
    train = {key: raw["train"][key] for key in kept} | {"algorithm": algorithm}
    if algorithm == "eagle3":
        del train["mask_token"]
    raw |= {"train": train}
    config = complete(raw, load_schema(project / "config/schema.yaml"), project)
    plan = plan_training(config, project, Assumptions())
    assert plan.drafter is not None and plan.hours is not None
    assert len(plan.drafter.windowed) == config["train"]["layers"]
    assert memory_of(plan).size > 0


def test_the_recipe_knows_how_large_its_target_is(project: Path) -> None:
    # The index of the published weights says 55.56 GB, layers for drafting of its own included.
    size = target_size(project / "resources/targets/qwen3.6-27b@6a9e13bd", trust_remote_code=False)
    assert size is not None
    assert 2 * size.parameters == pytest.approx(55.56e9, rel=0.02)


def test_the_size_of_a_hybrid_target_is_that_of_the_model(tmp_path: Path) -> None:
    text = {
        **{"model_type": "qwen3_5_text", "vocab_size": 256, "hidden_size": 64, "head_dim": 32},
        **{"intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4},
        **{"num_key_value_heads": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4},
        **{"linear_key_head_dim": 16, "linear_value_head_dim": 16},
        "layer_types": ["linear_attention", "full_attention"] * 2,
    }
    vision = {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16}
    content = {
        **{"model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"]},
        **{"text_config": text, "vision_config": {**vision, "out_hidden_size": 64}},
    }
    (tmp_path / "config.json").write_text(json.dumps(content))
    size = target_size(tmp_path, trust_remote_code=False)
    model = Qwen3_5ForConditionalGeneration(AutoConfig.from_pretrained(tmp_path))
    assert size is not None
    assert size.parameters == sum(parameter.numel() for parameter in model.parameters())
    cached = model.model.language_model.layers[1].self_attn
    assert size.key_value_width == cached.k_proj.out_features + cached.v_proj.out_features
    assert size.attention_layers == 2


class Trained:
    """A run that was planned, then really trained, in a project of its own."""

    def __init__(self, project: Path, target: Path, optimizer: str):
        train = {"optimizer": optimizer, "epochs": 1, "layers": 1, "target_layer_ids": [1, 3]}
        raw = yaml.safe_load((project / TOY).read_text())
        raw["target"] = {"name": "tiny", "path": str(target)}
        raw["train"] = {**raw["train"], **train, "learning_rate": 0.001, "anchors": 16}
        self.config = complete(raw, load_schema(project / "config/schema.yaml"), project)
        self.folder = Path(target_folder(self.config))
        self.results = Path("results/toy")
        self.folder.parent.mkdir()
        self.folder.symlink_to(target)
        self._make_rows_and_states()
        self.plan = plan_training(self.config, project, Assumptions())
        self.command: list[str] = []
        self._train()
        (self.checkpoints,) = self.results.glob("checkpoints/*/")

    def _make_rows_and_states(self) -> None:
        self.results.mkdir(parents=True)
        conversations = ROOT / "resources/toy_target/conversations.jsonl"
        with jsonl_writer(self.results / "corpus.jsonl") as corpus:
            for number, record in enumerate(islice(read_jsonl(conversations), 8)):
                corpus.write({**record, "split": "train" if number < 6 else "validation"})
        tokenized = self.results / "tokenized"
        tokenize_into(tokenized, self.results / "corpus.jsonl", self.folder, seq_length=512)
        settings = stage_settings(self.config, "extract_hidden_states")
        extract_hidden_states(
            read_settings(HiddenStatesSettings, canonical(settings)),
            *(tokenized, self.folder, self.results / "hidden_states.json"),
            TransformersStates(self.folder, settings["layer_ids"], settings["dtype"]),
            Stage("extract_hidden_states", StringIO()),
        )

    def _train(self) -> None:
        settings = stage_settings(self.config, "train_drafter")
        inputs = Inputs(
            *(self.results / "tokenized", self.folder, self.results / "hidden_states.json")
        )
        with self._watched():
            train_drafter(
                read_settings(TrainSettings, canonical(settings)),
                read_settings(TrainerSettings, canonical(self.config["trainer"])),
                *(inputs, self.results / "train.json", self.results / "trainer.log"),
                Stage("train_drafter", StringIO()),
            )

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Note the command line of the trainer while the block runs."""

        def look() -> None:
            while not self.command:
                for process in psutil.process_iter(["cmdline"]):
                    line = process.info["cmdline"] or []
                    if "training_launcher.py" in " ".join(line[:2]) and self._is_mine(process):
                        self.command = line
                time.sleep(0.05)

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        yield
        thread.join(10)

    @staticmethod
    def _is_mine(process: psutil.Process) -> bool:
        try:
            return process.cwd() == str(Path.cwd().resolve())
        except psutil.Error:
            return False


@pytest.fixture(scope="module", params=["muon", "adamw"])
def trained(
    request: pytest.FixtureRequest, target: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Trained]:
    folder = tmp_path_factory.mktemp("project")
    for name in ("config", "resources"):
        (folder / name).symlink_to(ROOT / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield Trained(folder, target, request.param)


def without_digests(text: str) -> str:
    return re.sub(r"\b[0-9a-f]{8}\b(?!/weights)", UNKNOWN, text)


def test_the_trainer_got_the_configuration_of_the_plan(trained: Trained) -> None:
    written = (trained.checkpoints / "trainer.yaml").read_text()
    planned_text = yaml.safe_dump(trained.plan.content, sort_keys=False)
    assert without_digests(written) == without_digests(planned_text)
    assert trained.plan.content["train"]["draft"]["mask_token_id"] is not None


def test_the_trainer_was_started_by_the_command_of_the_plan(trained: Trained) -> None:
    (command,) = trained.plan.commands
    assert without_digests(" ".join(trained.command)) == " ".join(command.words)
    assert command.environment == trainer_environment(0, 0)


def test_rows_are_counted_where_they_are(trained: Trained) -> None:
    stats = json.loads((trained.results / "tokenized/stats.json").read_text())
    lengths = [len(ids) for ids, _, _ in read_token_rows(trained.results / "tokenized")]
    assert trained.plan.rows.tokens == sum(lengths[: stats["train_rows"]])
    assert trained.plan.rows.longest == max(lengths)


def test_the_drafter_has_as_many_parameters_as_planned(trained: Trained) -> None:
    drafter = SpeculatorModel.from_pretrained(trained.checkpoints / "0")
    sizes = {True: 0, False: 0}
    for parameter in drafter.parameters():
        sizes[parameter.requires_grad] += parameter.numel()
    assert trained.plan.drafter is not None
    assert (trained.plan.drafter.trained, trained.plan.drafter.frozen) == (
        sizes[True],
        sizes[False],
    )


def test_a_checkpoint_is_as_large_as_planned(trained: Trained) -> None:
    names = ("model.safetensors", "optimizer_state_dict.pt")
    size = sum((trained.checkpoints / "0" / name).stat().st_size for name in names)
    assert trained.plan.amounts is not None
    assert trained.plan.amounts.checkpoint_size == pytest.approx(size, rel=0.03)


def test_a_server_is_given_what_the_stage_gives_it(project: Path) -> None:
    online = {"mode": "online", "transfer": "fp8"}
    plan = plan_of(project, TOY, hidden_states=online, serving={"options": ["--seed", "1"]})
    server, trainer = plan.commands
    folder = Path("resources/toy_target")
    serving = Serving(options=("--seed", "1"))
    states = VllmStates(
        *(folder, plan.run.settings.target_layer_ids, "bfloat16", False, serving, Path("log")),
        say=print,
        transfer=Transfer("fp8"),
    )
    on_their_way = plan.run.checkpoints.with_name(f".states-{UNKNOWN}")
    options = states.options(on_their_way.resolve(), plan.rows.longest)
    target = plan.run.target
    assert server.words == server_command(
        *(target, str(target), [*options, *serving.command_options()], 8000)
    )
    assert plan.content["train"]["data"]["hidden_states_backend"] == "fp8"
    assert plan.content["train"]["backend"] == states.trainer_options(on_their_way)["backend"]
    folder = plan.run.checkpoints
    assert trainer.words == trainer_command(0, 1, folder / "trainer.yaml", folder / "metrics.jsonl")
    assert plan.amounts is not None
    exact = plan_of(project, TOY, hidden_states={**online, "transfer": "file"})
    assert exact.amounts is not None
    assert exact.amounts.state_size == 2 * plan.amounts.state_size


def test_no_weights_are_made(project: Path) -> None:
    plan = plan_of(project, train={"layers": 400, "full_attention_layers": []})
    assert plan.drafter is not None
    assert plan.drafter.trained * 4 > 400 * GIB


def test_layers_that_a_server_would_mask_otherwise_are_named(project: Path) -> None:
    def warned(**train: object) -> bool:
        plan = plan_of(project, train={"full_attention_layers": [4], **train})
        return any("train.full_attention_layers" in warning for warning in plan.warnings)

    assert not warned()
    assert not warned(algorithm="dspark")
    both_ways = {"draft": {"sliding_window_non_causal": True}}
    assert warned(algorithm="dspark", options=both_ways)


def test_the_page_names_options_that_the_trainer_has() -> None:
    page = (ROOT / "docs/training.md").read_text()
    table = page.partition("## What the trainer is given")[2].partition("\n## ")[0]
    named = set(re.findall(r"`--([a-z0-9-]+)", table))
    known = {name.replace("_", "-") for name in TrainConfig().flatten()}
    assert len(named) > 30
    assert named <= known
    keys = {field.name for kind in (TrainSettings, TrainerSettings) for field in fields(kind)}
    shown = set(re.findall(r"[a-z_]+", table))
    assert keys - shown <= {"hidden_states", "transfer", "nodes", "mooncake", "trust_remote_code"}
