"""What a training would do, from its configuration alone: no GPU, no weights, no data."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lib.configuration import Config, known_target
from lib.model_sizes import DrafterSize, TargetSize, drafter_size, target_size
from lib.planned_run import SIZES, UNKNOWN, PlannedRun, planned_run
from lib.target_facts import TargetFacts, read_facts
from lib.train_settings import check_target_layers
from lib.trainer_check import CheckedConfig, check_trainer_config
from lib.training_amounts import (
    Amounts,
    Rates,
    Rows,
    amounts,
    counted_rows,
    expected_rows,
    server_rate,
    states_hours,
    trainer_rate,
    training_hours,
)
from lib.training_commands import PORT, Command
from lib.training_memory import (
    GIB,
    Memory,
    ServerMemory,
    Step,
    server_memory,
    step_of,
    trainer_memory,
)

_ROOM = 0.95
"""Share of a GPU's memory that an estimate may reach: batches differ, and it is an estimate."""


@dataclass(frozen=True)
class Assumptions:
    """What a plan takes for granted.

    Attributes:
        gpu_memory_gib: memory of a GPU in GiB.
        conversations: how many there are, where rows are not counted yet; None takes what the
            configuration asks for.
        conversation_tokens: tokens of a conversation, likewise.
        supervised_share: share of supervised tokens, likewise.
        teraflops: useful operations of a GPU a second, in 10^12.
        server_rate: tokens a second that the server reads, if that was measured.
        trainer_rate: tokens a second of one process of the trainer, if that was measured.
    """

    gpu_memory_gib: float = 96.0
    conversations: int | None = None
    conversation_tokens: float = 1000.0
    supervised_share: float = 0.5
    teraflops: float = 250.0
    server_rate: float | None = None
    trainer_rate: float | None = None


@dataclass(frozen=True)
class KnownTarget:
    """A target whose `config.json` is at hand.

    Attributes:
        folder: where that file lies.
        size: None if transformers does not know its architecture.
    """

    folder: Path
    facts: TargetFacts
    size: TargetSize | None


@dataclass(frozen=True)
class Plan:
    """What a training would do.

    Attributes:
        run: what the configuration says.
        assumptions: what is taken for granted.
        target: None if its `config.json` is not at hand.
        drafter: None without that; so are `amounts`.
        content: the trainer's configuration, as it is written.
        checked: the same as the trainer reads it.
        commands: those of server and trainer, in the order of their start.
        rows: what there is to train on.
        amounts: what that takes.
        rates: how fast server and trainer are.
        states_hours: how long the server takes for stored hidden states; None if there are none.
        hours: how long the training takes; None if it is not known.
        server_memory, trainer_memory: of each GPU; None if there is none, or if a size is not
            known.
        unknown: what could not be found out, and how it can be.
        warnings: what does not fit.
    """

    run: PlannedRun
    assumptions: Assumptions
    target: KnownTarget | None
    drafter: DrafterSize | None
    content: dict[str, Any]
    checked: CheckedConfig
    commands: tuple[Command, ...]
    rows: Rows
    amounts: Amounts | None
    rates: Rates
    states_hours: float | None
    hours: float | None
    server_memory: ServerMemory | None
    trainer_memory: Memory | None
    unknown: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def plan_training(
    config: Config, root: Path, assumptions: Assumptions, target_config: Path | None = None
) -> Plan:
    """Return what the training of a complete configuration would do.

    Args:
        root: the project's folder.
        target_config: folder with the target's `config.json`, where the project has none.

    Raises:
        ValueError: the configuration does not fit the target, or speculators' trainer.
    """
    run = planned_run(config, root)
    target = _known_target(run, target_config)
    rows = _rows(run, assumptions)
    content = run.trainer_content()
    checked = check_trainer_config(content)
    drafter = _drafter(run, target)
    step = step_of(run.settings, checked.config.loss.ttt_steps)
    rates = _rates(run, assumptions, target, drafter, step)
    plan = Plan(
        *(run, assumptions, target, drafter, content, checked),
        commands=tuple(run.commands(target.folder if target is not None else None, rows.longest)),
        rows=rows,
        amounts=_amounts(run, rows, target, drafter),
        rates=rates,
        states_hours=states_hours(run.settings, rows, rates),
        hours=training_hours(run.settings, rows, rates),
        server_memory=_server_memory(run, target, assumptions),
        trainer_memory=_trainer_memory(run, drafter, step),
    )
    return replace(
        plan,
        unknown=tuple(_unknown(plan)),
        warnings=(*checked.warnings, *_warnings(plan)),
    )


def _known_target(run: PlannedRun, given: Path | None) -> KnownTarget | None:
    folder = given or known_target(run.config, run.root)
    if folder is None:
        return None
    check_target_layers(run.settings, folder)
    return KnownTarget(
        folder, read_facts(folder), target_size(folder, run.settings.trust_remote_code)
    )


def _rows(run: PlannedRun, assumptions: Assumptions) -> Rows:
    if run.stats is not None:
        return counted_rows(run.stats)
    return expected_rows(
        assumptions.conversations or _quotas(run.config),
        assumptions.conversation_tokens,
        assumptions.supervised_share,
        run.config["merge"]["validation_share"],
        run.config["tokenize"]["seq_length"],
    )


def _quotas(config: Config) -> int:
    """Return how many conversations the configuration asks for, where it says so."""
    most = config["merge"]["max_samples"]
    quotas = sum(entry.get("max_samples") or 0 for entry in config["sources"])
    return quotas if most is None else int(most)


def _drafter(run: PlannedRun, target: KnownTarget | None) -> DrafterSize | None:
    """Return the size of the drafter; one that training starts from has the configured shape."""
    if target is None:
        return None
    vocabulary = run.settings.draft_vocabulary or target.facts.vocabulary
    new = check_trainer_config(run.new_drafter_content()).config
    return drafter_size(new, target.folder, vocabulary)


def _amounts(
    run: PlannedRun, rows: Rows, target: KnownTarget | None, drafter: DrafterSize | None
) -> Amounts | None:
    if target is None or drafter is None:
        return None
    width, number = target.facts.hidden_size, run.state_number_size
    return amounts(run.settings, run.running, rows, drafter, width, number)


def _rates(
    run: PlannedRun,
    assumptions: Assumptions,
    target: KnownTarget | None,
    drafter: DrafterSize | None,
    step: Step,
) -> Rates:
    """Return measured rates, or those that follow from the assumed speed of a GPU."""
    settings, gpus = run.settings, run.serving.gpus
    size = target.size if target is not None else None
    flops = assumptions.teraflops * 1e12
    server, trainer = assumptions.server_rate, assumptions.trainer_rate
    if server is None and run.uses_server and gpus and size is not None:
        server = server_rate(size, flops, gpus)
    if trainer is not None:
        trainer *= max(1, settings.gpus) * settings.nodes
    elif settings.gpus and drafter is not None:
        trainer = trainer_rate(settings, run.running, drafter, step, flops)
    return Rates(server, trainer)


def _server_memory(
    run: PlannedRun, target: KnownTarget | None, assumptions: Assumptions
) -> ServerMemory | None:
    if target is None or target.size is None or not run.uses_server or not run.serving.gpus:
        return None
    number = SIZES[run.number_type]
    states = (len(run.settings.target_layer_ids) + 1) * target.facts.hidden_size * number
    gpu = assumptions.gpu_memory_gib * GIB
    return server_memory(run.serving, target.size, states, number, gpu)


def _trainer_memory(run: PlannedRun, drafter: DrafterSize | None, step: Step) -> Memory | None:
    if drafter is None or not run.settings.gpus:
        return None
    return trainer_memory(run.settings, run.running, drafter, step)


def _unknown(plan: Plan) -> Iterator[str]:
    run, target = plan.run, plan.target
    if target is None:
        yield (
            f"sizes, memory, hours, the server's command: {run.target}/config.json is not there; "
            "give the file with --target-config, or bring the target with `snakemake weights`"
        )
    elif target.size is None:
        yield (
            "the server's memory and speed: transformers does not know the architecture in "
            f"{target.folder}/config.json"
        )
    if run.stats is None:
        yield f"{run.tokenized}/stats.json is not there; rows and train_data_ratio are expected"
    if not plan.rows.tokens:
        yield "the number of conversations: no source has max_samples; give --conversations"
    token = run.settings.mask_token
    if token is not None and plan.checked.config.draft.mask_token_id is None:
        yield (
            f"mask_token_id, left out above: the id of {token!r} follows from the target's "
            "tokenizer and the token rows"
        )
    yield f"{UNKNOWN} follows from settings, data and target; {PORT} stands for a free port"


def _warnings(plan: Plan) -> Iterator[str]:
    """Yield what does not fit, with the keys that change it."""
    settings, gpu = plan.run.settings, plan.assumptions.gpu_memory_gib
    if (memory := plan.trainer_memory) is not None and memory.size > _ROOM * gpu * GIB:
        yield (
            f"the trainer needs about {memory.size / GIB:.1f} GiB of the {gpu:g} GiB of a GPU: "
            "lower train.anchors or train.sequence_length, or set trainer.gradient_checkpointing "
            "or trainer.shard_parameters"
        )
    if (server := plan.server_memory) is not None and server.tokens < 2 * plan.rows.longest:
        yield (
            f"the server has room for {server.tokens:,} tokens on their way, and a row has up to "
            f"{plan.rows.longest:,}: raise serving.tensor_parallel or serving.memory_share"
        )
    supervised = plan.amounts.sequence_supervised if plan.amounts is not None else settings.anchors
    if settings.block_size and settings.anchors > supervised:
        yield (
            f"train.anchors: {settings.anchors} are more than the {supervised:,.0f} supervised "
            "tokens of a sequence; the rest is computed for nothing"
        )
    if plan.drafter is not None and (layers := list(plan.drafter.masked_otherwise)):
        yield (
            f"train.full_attention_layers: vLLM 0.32 would mask the blocks of layers {layers} in "
            "another way than the training does; give all layers a window"
        )
    if settings.gpus and plan.run.running.log_every < 10:
        yield "trainer.log_every: each logged step makes the GPU wait; take 10 or more"
