"""A toy target: a real Qwen3 of about 1.4 million parameters, trained in a minute on a CPU.

It stands in for a large model where there is no GPU and no hub: same architecture family, its
own tokenizer, a strict chat template, and answers regular enough that a drafter can learn them.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.trainers import BpeTrainer
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from lib.conversation import Conversation, from_record
from lib.files import read_json
from lib.jsonl import read_jsonl
from lib.rendering import Renderer, ThinkingMode

SEED = 0
STEPS = 600
SEQUENCES_A_STEP = 4
SEQUENCE_LENGTH = 320
LEARNING_RATE = 6e-3


def build_toy_target(plan: Path, folder: Path, advance: Callable[[int], None]) -> None:
    """Write a complete model folder: weights, configuration, tokenizer and chat template.

    Args:
        plan: folder with `config.json` (architecture), `tokenizer_config.json` (tokens),
            `chat_template.jinja` and `conversations.jsonl` (what the target learns).
        folder: where the model goes.
        advance: called with 1 after each of the `STEPS` training steps.
    """
    records = [from_record(record) for record in read_jsonl(plan / "conversations.jsonl")]
    architecture = read_json(plan / "config.json")
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _train_tokenizer(records, plan, architecture["vocab_size"])
    tokenizer.save_pretrained(folder)
    model = _new_model(architecture, tokenizer)
    _train(model, _token_stream(records, folder), advance)
    model.generation_config = GenerationConfig(
        eos_token_id=[tokenizer.eos_token_id, tokenizer.pad_token_id],
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(folder)


def _train_tokenizer(
    records: list[Conversation], plan: Path, vocabulary: int
) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE with chat and markup tokens of its own."""
    names = read_json(plan / "tokenizer_config.json")
    special = [AddedToken(token, special=True) for token in names["special_tokens"]]
    markup = [
        AddedToken(token, special=False, normalized=False) for token in names["markup_tokens"]
    ]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=vocabulary - len(special) - len(markup),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(records), trainer)
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens(markup)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=names["eos_token"],
        pad_token=names["pad_token"],
        chat_template=(plan / "chat_template.jinja").read_text(encoding="utf-8"),
    )


def _texts(records: list[Conversation]) -> Iterator[str]:
    for record in records:
        yield record.tools
        for turn in record.turns:
            yield turn.text
            yield turn.reasoning
            for call in turn.tool_calls:
                yield f"<function={call.name}>\n<parameter=>\n{call.arguments}"


def _new_model(
    architecture: dict[str, Any], tokenizer: PreTrainedTokenizerFast
) -> Qwen3ForCausalLM:
    torch.manual_seed(SEED)
    config = Qwen3Config(
        **architecture,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen3ForCausalLM(config)


def _token_stream(records: list[Conversation], target: Path) -> torch.Tensor:
    """Return all conversations one after another, shuffled, with and without their reasoning."""
    rows: list[list[int]] = []
    for thinking in (False, True):
        renderer = Renderer(target, ThinkingMode(thinking))
        for record in records:
            if not thinking or all(turn.reasoning for turn in record.turns if turn.role == "gpt"):
                rows.append(renderer.encode(renderer.conversation(record.turns, record.tools)))
    random.Random(SEED).shuffle(rows)
    return torch.tensor([token for row in rows for token in row])


def _train(model: Qwen3ForCausalLM, stream: torch.Tensor, advance: Callable[[int], None]) -> None:
    generator = torch.Generator().manual_seed(SEED)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=LEARNING_RATE, total_steps=STEPS, pct_start=0.1
    )
    offsets = torch.arange(SEQUENCE_LENGTH)
    model.train()
    for _ in range(STEPS):
        starts = torch.randint(
            len(stream) - SEQUENCE_LENGTH, (SEQUENCES_A_STEP, 1), generator=generator
        )
        batch = stream[starts + offsets]
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        advance(1)
    model.eval()
