"""Have the target answer every conversation of the corpus, or of one shard of it."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lib.console import Stage, stage
from lib.digest import digest
from lib.files import read_json
from lib.generation import TransformersAnswers, TransformersTarget
from lib.gpus import own_gpus
from lib.journal import Journal
from lib.rendering import Renderer, ThinkingMode
from lib.responding import (
    AnsweringTarget,
    Asking,
    ResponseSettings,
    regenerate_responses,
)
from lib.response_totals import Outputs
from lib.serving import Serving, kept_server
from lib.settings import read_settings
from lib.shards import Shard, read_lines
from lib.vllm_answers import OPTIONS, VllmAnswers


def main() -> None:
    """Run the stage as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", required=True, help="settings as JSON")
    parser.add_argument("--serving", default="{}", help="how vLLM runs the target, as JSON")
    parser.add_argument("--corpus", type=Path, required=True, help="records to answer")
    parser.add_argument("--shard", type=Shard.parse, default="1-of-1", help="which part of them")
    parser.add_argument("--weights", type=Path, required=True, help="manifest of the target")
    parser.add_argument("--responses", type=Path, required=True, help="records to write")
    parser.add_argument(
        "--failures", type=Path, required=True, help="unanswered conversations to write"
    )
    parser.add_argument("--stats", type=Path, required=True, help="counts to write")
    parser.add_argument(
        "--cache", type=Path, required=True, help="folder of answers that are reused between runs"
    )
    parser.add_argument("--log", type=Path, required=True, help="log file")
    args = parser.parse_args()
    name = f"regenerate_responses {args.shard}" if args.shard.shards > 1 else "regenerate_responses"
    with stage(name, args.log) as current:
        settings = read_settings(ResponseSettings, args.settings)
        serving = read_settings(Serving, args.serving)
        mode = ThinkingMode(settings.thinking, settings.preserve_thinking)
        renderer = Renderer(args.weights.parent, mode, settings.trust_remote_code)
        sampling = settings.sampling(renderer.target)
        identity = digest([read_json(args.weights), vars(sampling)])
        lines = args.shard.lines(args.corpus)
        with (
            Journal(args.cache / identity[:16]) as journal,
            answering_target(settings, serving, renderer, args.log, current) as target,
            current.progress("conversations", len(lines)) as progress,
        ):
            stats = regenerate_responses(
                read_lines(args.corpus, lines),
                Asking(renderer, target, settings.max_tokens, settings.on_mismatch, journal),
                Outputs(args.responses, args.failures, args.stats),
                progress.advance,
            )
        current.result(
            f"{stats['answered']} conversations answered, {stats['failed']} failed, "
            f"{stats['records']} records"
        )


@contextmanager
def answering_target(
    settings: ResponseSettings, serving: Serving, renderer: Renderer, log: Path, current: Stage
) -> Iterator[AnsweringTarget]:
    """Have a target at hand that answers, in this process or in a server."""
    ends, sampling = renderer.end_of_turn_ids, settings.sampling(renderer.target)
    if settings.backend == "transformers":
        model = TransformersTarget(renderer.target, ends, settings.trust_remote_code)
        yield TransformersAnswers(model, sampling, settings.context_length)
        return
    current.say("starting vLLM")
    options = [*OPTIONS, *(["--trust-remote-code"] if settings.trust_remote_code else [])]
    if settings.context_length is not None:
        options += ["--max-model-len", str(settings.context_length)]
    server_log = log.with_suffix(".vllm.log")
    with (
        own_gpus(serving.gpus, current.say),
        kept_server(renderer.target, serving, options, server_log, current.say) as server,
    ):
        answers = VllmAnswers(server, ends, sampling, serving.concurrency)
        try:
            yield answers
        finally:
            answers.close()


if __name__ == "__main__":
    main()
