"""Runs Snakemake's command line again and again in one process: a start of its own takes 2 s.

Each line of standard input is a JSON list of arguments. Each gets a line on standard output: what
Snakemake wrote to its two outputs, and whether it ended well.
"""

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout

from snakemake.cli import args_to_api, parse_args


def answer(arguments: list[str]) -> dict[str, object]:
    """Run Snakemake's command line in this process."""
    sys.argv[:] = ["snakemake", *arguments]
    output, said = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(said):
        parser, parsed = parse_args(arguments)
        try:
            ended_well = bool(args_to_api(parsed, parser))
        except SystemExit as end:
            ended_well = end.code is None
            print(end.code or "", file=said)
    return {"output": output.getvalue(), "said": said.getvalue(), "ended_well": ended_well}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
