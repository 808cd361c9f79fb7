"""A plan of a training as text for people."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import yaml

from lib.sizes import show_bytes
from lib.training_memory import GIB, Memory, Part, ServerMemory
from lib.training_plan import Plan

_Line = tuple[str, str, str]
"""A label, a value, and how it comes about."""


def plan_text(plan: Plan) -> str:
    """Return a plan as text, a section after another.

    Bytes in memory are in GiB (2^30), those on disk in units of a thousand.
    """
    sections = [
        ("", _head(plan)),
        ("The trainer's configuration, which speculators reads as it is written", _yaml(plan)),
        ("Layers of the target", _table(_layers(plan))),
        ("Drafter", _table(_drafter(plan))),
        ("Commands", _commands(plan)),
        ("Memory of a GPU of the server (estimate)", _table(_server_memory(plan))),
        ("Memory of a GPU of the trainer (estimate)", _table(_trainer_memory(plan))),
        ("Tokens and steps", _table(_steps(plan))),
        ("Hidden states and disk", _table(_disk(plan))),
        ("Time (a guess until it is measured)", _table(_time(plan))),
        ("Not known yet", [f"* {line}" for line in plan.unknown]),
        ("Warnings", [f"* {line}" for line in plan.warnings] or ["none"]),
    ]
    parts = []
    for title, lines in sections:
        heading = [title, "-" * len(title)] if title else []
        parts.append("\n".join([*heading, *(lines or ["not known"])]))
    return "\n\n".join(parts) + "\n"


def _head(plan: Plan) -> list[str]:
    where = f"{plan.target.folder}/config.json" if plan.target is not None else "not at hand"
    return [
        f"Plan of the training of run {plan.run.config['run']}; nothing is started.",
        f"Target: {where}",
    ]


def _yaml(plan: Plan) -> list[str]:
    return yaml.safe_dump(plan.content, sort_keys=False).rstrip().splitlines()


def _layers(plan: Plan) -> Iterator[_Line]:
    ids = plan.run.settings.target_layer_ids
    meaning = "as in vLLM, speculators, transformers: output of layer k, 0 the embeddings"
    yield "target_layer_ids", _list(ids), meaning
    outputs = [str(k - 1) if k else "none" for k in ids]
    yield "DFlash paper, z-lab", _list(outputs), "layer outputs counted from 0: k - 1"
    if plan.target is not None:
        last = str(plan.target.facts.layers)
        yield "added by the server", last, "the last layer, for what the target itself would say"


def _drafter(plan: Plan) -> Iterator[_Line]:
    if (size := plan.drafter) is None:
        return
    layers = "".join("S" if is_windowed else "F" for is_windowed in size.windowed)
    heads = f"{size.heads} heads of {size.head_width}, {size.key_heads} of keys"
    yield "kind", plan.run.settings.algorithm, f"layers {layers} (S: a window, F: none), {heads}"
    yield "parameters trained", f"{size.trained:,}", f"{size.layers:,} of them in layers"
    yield "parameters of the target", f"{size.frozen:,}", "embedding, output heads, norm; not saved"


def _commands(plan: Plan) -> list[str]:
    lines = []
    for command in plan.commands:
        lines += [f"# {command.purpose}", str(command)]
    return lines


def _server_memory(plan: Plan) -> Iterator[_Line]:
    if not plan.run.uses_server or not plan.run.serving.gpus:
        kind = "the server runs on the processor" if plan.run.uses_server else "no server is needed"
        yield "none", "", kind
    elif plan.server_memory is not None:
        yield from _server_parts(plan, plan.server_memory)


def _server_parts(plan: Plan, memory: ServerMemory) -> Iterator[_Line]:
    yield from map(_part, memory.taken.parts)
    share = plan.run.serving.memory_share
    limit = f"{share:g} x {plan.assumptions.gpu_memory_gib:g} GiB, less the above"
    yield "cache", _gib(memory.cache), limit
    size = f"{memory.token_size:,.0f} B a token: keys, values, hidden states"
    yield "tokens in the cache", f"{memory.tokens:,}", size


def _trainer_memory(plan: Plan) -> Iterator[_Line]:
    if not plan.run.settings.gpus:
        yield "none", "", "the trainer runs on the processor"
    elif plan.trainer_memory is not None:
        yield from _trainer_parts(plan, plan.trainer_memory)


def _trainer_parts(plan: Plan, memory: Memory) -> Iterator[_Line]:
    yield from map(_part, memory.parts)
    gpu = plan.assumptions.gpu_memory_gib
    yield "trainer, all", _gib(memory.size), f"{memory.size / GIB / gpu:.0%} of {gpu:g} GiB"


def _steps(plan: Plan) -> Iterator[_Line]:
    rows, settings = plan.rows, plan.run.settings
    yield "tokens to train on", f"{rows.tokens:,}", rows.origin
    yield "supervised", f"{rows.supervised_share:.0%}", "of the tokens"
    if (sums := plan.amounts) is None:
        return
    processes = max(1, settings.gpus) * settings.nodes
    factors = f"{settings.sequence_length:,} x {processes} processes"
    yield "tokens a step", f"{sums.step_tokens:,}", factors
    steps = sums.epoch_steps
    yield "steps an epoch", f"{steps:,}", "at least, for sequences are seldom full"
    yield "steps in all", f"{steps * settings.epochs:,}", f"{settings.epochs} epochs"
    if settings.block_size:
        blocks = f"{settings.anchors:,} x {processes} processes, {settings.block_size} tokens each"
        yield "blocks a step", f"{settings.anchors * processes:,}", blocks
        share = f"{settings.anchors:,} of about {sums.sequence_supervised:,.0f} in a sequence"
        yield "supervised tokens anchored", f"{sums.anchored_share:.1%}", f"an epoch: {share}"
        yield "after all epochs", f"{sums.reached_share:.1%}", "anchors are chosen anew each time"


def _disk(plan: Plan) -> Iterator[_Line]:
    if (sums := plan.amounts) is None:
        return
    layers = len(plan.run.settings.target_layer_ids) + 1
    yield "hidden states a token", f"{sums.state_size:,} B", f"{layers} layers"
    if plan.run.settings.hidden_states == "online":
        rate = min(filter(None, (plan.rates.server, plan.rates.trainer)), default=0.0)
        yield "on their way", f"{show_bytes(rate * sums.state_size)}/s", "written, read, removed"
        yield "stored", "none", f"{show_bytes(sums.states_size)} if they were"
    else:
        yield "stored", show_bytes(sums.states_size), "of all rows"
    if sums.batches_size:
        ahead = (
            f"{plan.run.running.data_workers} loaders a GPU, 4 batches each, in memory of a node"
        )
        yield "batches in advance", _gib(sums.batches_size), ahead
    size, optimizer = sums.checkpoint_size, plan.run.settings.optimizer
    yield "a checkpoint", show_bytes(size), f"drafter and {optimizer}, float32"
    kept = f"{plan.run.running.keep_checkpoints} last, the best, and one being written"
    yield "all checkpoints", show_bytes(sums.checkpoints * size), f"at most: {kept}"


def _time(plan: Plan) -> Iterator[_Line]:
    given = plan.assumptions
    assumed = f"assumed: {given.teraflops:g} TFLOP/s of useful work on each GPU"
    server, trainer = plan.rates.server, plan.rates.trainer
    if server is not None:
        how = assumed if given.server_rate is None else "given"
        yield "server", f"{server:,.0f} tokens/s", how
    if trainer is not None:
        how = assumed if given.trainer_rate is None else "given, for each process"
        yield "trainer", f"{trainer:,.0f} tokens/s", how
    if plan.states_hours is not None:
        yield "stored hidden states", f"{plan.states_hours:,.1f} hours", "before the training"
    if plan.hours is None:
        yield "training", "not known", "give the rates: --server-rate, --trainer-rate"
        return
    settings = plan.run.settings
    slower = ", at the slower rate" if settings.hidden_states == "online" else ""
    yield "training", f"{plan.hours:,.1f} hours", f"{settings.epochs} epochs{slower}"
    between = plan.hours / settings.epochs / plan.run.running.checkpoints_per_epoch
    every = f"{plan.run.running.checkpoints_per_epoch} an epoch; so much is lost at most"
    yield "between checkpoints", f"{between:,.1f} hours", every


def _part(part: Part) -> _Line:
    return part.name, _gib(part.size), part.formula


def _gib(size: float) -> str:
    return f"{size / GIB:,.1f} GiB"


Value = TypeVar("Value")


def _list(values: Iterable[Value]) -> str:
    return " ".join(map(str, values))


def _table(lines: Iterable[_Line]) -> list[str]:
    """Return lines with their columns below each other."""
    rows = list(lines)
    widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    return [
        f"{label:<{widths[0]}}  {value:>{widths[1]}}  {how}".rstrip() for label, value, how in rows
    ]
