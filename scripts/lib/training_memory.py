"""What server and trainer keep in the memory of each GPU, as an estimate.

The formulas follow from what speculators 0.9.0 and vLLM 0.32 keep: numbers times their size. What
is kept for the backward pass is what is left where the forward pass is compiled, as it is on a GPU.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from lib.model_sizes import DrafterSize, TargetSize
from lib.serving import Serving
from lib.train_settings import TrainerSettings, TrainSettings

GIB = 1024**3
OVERHEAD = 4 * GIB
"""Bytes for what no formula here has: CUDA, NCCL, work space, gaps between allocations."""

_FULL, _HALF = 4, 2
"""Bytes of a number: float32 for what is trained, bfloat16 for what is computed with."""

_SINGLE_TARGET_LOSS = "ce"
"""The loss that needs no more of the target than its choice; others keep all its logits."""


@dataclass(frozen=True)
class Part:
    """One part of a memory: its bytes, and how they come about."""

    name: str
    size: float
    formula: str


@dataclass(frozen=True)
class Memory:
    """What is kept on each GPU, in bytes by part."""

    parts: tuple[Part, ...]

    @property
    def size(self) -> float:
        """All bytes."""
        return sum(part.size for part in self.parts)


@dataclass(frozen=True)
class ServerMemory:
    """The memory of one GPU of the server.

    Attributes:
        taken: what is there besides the cache.
        cache: bytes for keys, values and hidden states on their way; negative if nothing is left.
        token_size: bytes of the cache that a token takes.
    """

    taken: Memory
    cache: float
    token_size: float

    @property
    def tokens(self) -> int:
        """How many tokens the cache holds."""
        return max(0, int(self.cache / self.token_size))


@dataclass(frozen=True)
class Step:
    """What one process of the trainer computes in a step.

    Attributes:
        tokens: those of the packed sequence.
        queries: positions that go through the drafter's layers.
        passes: how often the drafter runs; more than once only without blocks.
    """

    tokens: int
    queries: int
    passes: int = 1


def step_of(settings: TrainSettings, passes: int) -> Step:
    """Return a step of the trainer.

    Args:
        passes: how often a drafter without blocks runs (`ttt_steps` of speculators).
    """
    if settings.block_size is None:
        return Step(settings.sequence_length, settings.sequence_length * passes, passes)
    return Step(settings.sequence_length, settings.anchors * settings.block_size)


def server_memory(
    serving: Serving, target: TargetSize, states_size: int, number_size: int, gpu: float
) -> ServerMemory:
    """Estimate the memory of a GPU of the server.

    Args:
        states_size: bytes of a token's hidden states.
        number_size: bytes of a number of the weights.
        gpu: bytes of memory that a GPU has.
    """
    ranks = serving.tensor_parallel
    weights = target.parameters * number_size / ranks
    by = f" / {ranks} GPUs" if ranks > 1 else ""
    taken = Memory(
        (
            Part("weights", weights, f"{target.parameters:,} x {number_size} B{by}"),
            Part("overhead", OVERHEAD, "CUDA, its graphs, activations of a batch: a guess"),
        )
    )
    keys = target.attention_layers * target.key_value_width * number_size
    token_size = keys / min(ranks, target.key_value_heads) + states_size
    return ServerMemory(taken, serving.memory_share * gpu - taken.size, token_size)


def trainer_memory(
    settings: TrainSettings, running: TrainerSettings, drafter: DrafterSize, step: Step
) -> Memory:
    """Estimate the memory of a GPU of the trainer when it needs most."""
    kept = [*_states_of_training(settings, running, drafter), _context(settings, drafter, step)]
    kept.append(_activations(settings, running, drafter, step))
    kept.append(max(_at_times(settings, running, drafter, step), key=lambda part: part.size))
    return Memory((*kept, Part("overhead", OVERHEAD, "CUDA, NCCL, gaps: a guess")))


def optimizer_numbers(settings: TrainSettings, drafter: DrafterSize) -> int:
    """Return how many numbers the optimizer keeps: one of a matrix with Muon, else two."""
    if settings.optimizer == "muon":
        return 2 * drafter.trained - drafter.matrices
    return 2 * drafter.trained


def _states_of_training(
    settings: TrainSettings, running: TrainerSettings, drafter: DrafterSize
) -> Iterator[Part]:
    """Yield what is there all the time, whatever a step computes."""
    processes = settings.gpus * settings.nodes
    share = processes if running.shard_parameters else 1
    by = f" / {share} GPUs" if share > 1 else ""
    trained = f"{drafter.trained:,} x {_FULL} B{by}"
    numbers = optimizer_numbers(settings, drafter)
    yield Part("drafter", drafter.trained * _FULL / share, trained)
    yield Part("gradients", drafter.trained * _FULL / share, trained)
    if processes > 1 and share == 1:
        yield Part("gradients to exchange", drafter.trained * _FULL, trained)
    yield Part(settings.optimizer, numbers * _FULL / share, f"{numbers:,} x {_FULL} B{by}")
    frozen = f"{drafter.frozen:,} x {_FULL} B{by}"
    yield Part("embedding and output heads", drafter.frozen * _FULL / share, frozen)
    head = drafter.vocabulary * drafter.hidden_size
    if share > 1:  # all but the layers is gathered at once, the layers one after another
        gathered = drafter.frozen + drafter.trained - drafter.layers
        layer = 2 * drafter.layers // settings.layers
        what = f"({gathered:,} + {layer:,} of two layers) x {_HALF} B"
        yield Part("gathered for computing", (gathered + layer) * _HALF, what)
    else:
        what = f"({drafter.trained:,} + {head:,} of a head) x {_HALF} B"
        yield Part("the same for computing", (drafter.trained + head) * _HALF, what)


def _context(settings: TrainSettings, drafter: DrafterSize, step: Step) -> Part:
    """Return the hidden states of the sequence, and what is made of them for all layers."""
    width = (len(settings.target_layer_ids) + 3) * drafter.hidden_size
    formula = f"{step.tokens:,} tokens x {width:,} x {_HALF} B"
    return Part("hidden states", step.tokens * width * _HALF, formula)


def _activations(
    settings: TrainSettings, running: TrainerSettings, drafter: DrafterSize, step: Step
) -> Part:
    """Return what the decoder layers keep for the backward pass."""
    layers = settings.layers
    if running.gradient_checkpointing:
        residual = drafter.hidden_size * _FULL
        formula = f"{layers} layers x {step.queries:,} positions x {residual:,} B, the rest again"
        return Part("activations", layers * step.queries * residual, formula)
    layer = _layer(drafter, step)
    return Part("activations", layers * layer.size, f"{layers} layers x ({layer.formula})")


def _layer(drafter: DrafterSize, step: Step) -> Part:
    """Return what one layer keeps: twice the residual stream, and what matrices read."""
    inner = 3 * drafter.intermediate_size + 3 * drafter.hidden_size + 2 * drafter.query_width
    query = 2 * drafter.hidden_size * _FULL + inner * _HALF
    keys = 3 * drafter.key_width * _HALF
    both = step.queries + step.tokens
    formula = f"{step.queries:,} positions x {query:,} B + {both:,} x {keys:,} B"
    return Part("layer", step.queries * query + both * keys, formula)


def _at_times(
    settings: TrainSettings, running: TrainerSettings, drafter: DrafterSize, step: Step
) -> Iterator[Part]:
    """Yield what is there one after the other, so that only the largest counts."""
    yield _logits(settings, drafter, step)
    if running.gradient_checkpointing:
        layer = _layer(drafter, step)
        formula = f"2 x ({layer.formula}): values and gradients"
        yield Part("one layer again", 2 * layer.size, formula)


def _logits(settings: TrainSettings, drafter: DrafterSize, step: Step) -> Part:
    """Return the logits at the time when most of them are there.

    With the fused loss these are the drafter's, then beside them either the target's or the
    gradient; and all of those if the loss keeps the target's.
    """
    rows = 2 * step.queries
    if settings.block_size is None:
        rows = step.queries + 2 * step.tokens  # the target's and one gradient are of one pass
    else:
        if step.queries >= step.tokens:
            rows += step.tokens  # the target's are computed for the sequence, then copied
        if settings.loss != _SINGLE_TARGET_LOSS:
            rows = max(rows, 3 * step.queries)
        if settings.algorithm == "dspark":
            rows += 2 * step.queries  # the Markov head's, and their sum with the drafter's
    size = rows * drafter.vocabulary * _HALF
    return Part("logits", size, f"{rows:,} rows x {drafter.vocabulary:,} tokens x {_HALF} B")
