"""Conversations as the target sees them: its chat template, its tokenizer, one thinking mode."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, GenerationConfig

from lib.conversation import Turn, to_messages
from lib.encoding import TokenizerEncoder


@dataclass(frozen=True)
class ThinkingMode:
    """The one recorded mode that data, hidden states and serving share.

    Attributes:
        thinking: the target reasons before it answers.
        preserve_thinking: earlier reasoning stays in the history (templates that know the flag).
    """

    thinking: bool = False
    preserve_thinking: bool = False


class RenderError(ValueError):
    """The chat template refuses a conversation."""


@dataclass(frozen=True)
class Renderer:
    """Renders turns with the target's own template and tokenizer.

    The template runs in the sandbox of `transformers`.
    """

    target: Path
    mode: ThinkingMode
    trust_remote_code: bool = False

    @cached_property
    def tokenizer(self) -> Any:
        """The target's tokenizer."""
        return AutoTokenizer.from_pretrained(self.target, trust_remote_code=self.trust_remote_code)

    @cached_property
    def end_of_turn_ids(self) -> frozenset[int]:
        """Ids that end the target's turn: of its generation settings and of its tokenizer."""
        ids = {self.tokenizer.eos_token_id}
        if (self.target / "generation_config.json").is_file():
            stop = GenerationConfig.from_pretrained(self.target).eos_token_id
            ids |= set(stop if isinstance(stop, list) else [stop])
        return frozenset(ids - {None})

    @cached_property
    def special_tokens(self) -> tuple[str, ...]:
        """Special tokens of the tokenizer; none may appear inside the text of a turn."""
        return tuple(
            token.content for token in self.tokenizer.added_tokens_decoder.values() if token.special
        )

    def prompt(self, history: Sequence[Turn], tools: str) -> str:
        """Return the text that the target answers: the history and its generation prompt."""
        return self.render(self.messages(history), tool_list(tools), add_generation_prompt=True)

    def conversation(self, turns: Sequence[Turn], tools: str) -> str:
        """Return the text of finished turns, without a generation prompt."""
        return self.render(self.messages(turns), tool_list(tools), add_generation_prompt=False)

    def encode(self, text: str) -> list[int]:
        """Return the token ids of rendered text."""
        return TokenizerEncoder(self.tokenizer).encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, special tokens included, as it was encoded."""
        text: str = self.tokenizer.decode(
            list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    def messages(self, turns: Sequence[Turn]) -> list[dict[str, Any]]:
        """Return turns as the template expects them.

        With thinking off, reasoning is left out, since the target would not say it.
        """
        if not self.mode.thinking:
            turns = [_without_reasoning(turn) for turn in turns]
        return to_messages(tuple(turns))

    def render(
        self,
        messages: Sequence[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        *,
        add_generation_prompt: bool,
    ) -> str:
        """Return what the chat template makes of messages.

        Raises:
            RenderError: the template refuses them; holds its message.
        """
        try:
            text: str = self.tokenizer.apply_chat_template(
                messages,
                tools=tools,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                enable_thinking=self.mode.thinking,
                preserve_thinking=self.mode.preserve_thinking,
            )
        except Exception as error:
            raise RenderError(f"{type(error).__name__}: {error}") from error
        return text


def tool_list(tools: str) -> list[dict[str, Any]] | None:
    """Return the tools of a conversation as the template expects them."""
    return json.loads(tools) if tools else None


def _without_reasoning(turn: Turn) -> Turn:
    if not turn.reasoning:
        return turn
    return Turn(turn.role, turn.text, "", turn.tool_calls, turn.tool_call_id)
