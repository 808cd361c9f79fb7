"""What all rules share: the checked configuration and the two strings that decide staleness.

Everything that is worth testing is in scripts/lib; here it is only bound to the configuration.
"""

import re
import sys
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

from snakemake.cli import parse_args

sys.path.insert(0, str(Path(workflow.basedir, "scripts")))

from lib.allocation import training_allocation
from lib.configuration import (
    ConfigurationError,
    complete,
    drafter_folder,
    evaluation_files,
    load_schema,
    local_drafter_files,
    local_target_files,
    prompt_set_names,
    published_drafters,
    source_entry,
    source_names,
    stage_settings,
    target_folder,
    trainer_settings,
)
from lib.digest import canonical, code_digest
from lib.headline import headline
from lib.jobs import hide_scheduling, prepare_environment
from lib.locks import enter, this_run
from lib.shards import shard_names
from lib.writable import not_writable

# `python` in a rule is the interpreter that runs Snakemake, or that of the rule's conda
# environment; and jobs end by themselves when this process is gone.
prepare_environment()
hide_scheduling()


def command_line():
    """Return Snakemake's arguments; None where something else than its command line began."""
    if Path(sys.argv[0]).name not in ("snakemake", "__main__.py"):
        return None
    with redirect_stderr(StringIO()):
        return parse_args(sys.argv[1:])[1]


ASKED = command_line() if workflow.is_main_process else None

try:
    CONFIG = complete(
        config, load_schema(Path(workflow.basedir, "config/schema.yaml")), Path.cwd()
    )
except ConfigurationError as error:
    lines = [f"configuration: {line}" for line in str(error).splitlines()]
    if any(
        isinstance(value, dict) for value in workflow.config_settings.config.values()
    ):
        lines.append(
            "configuration: --config can't say values inside a section; write them to a"
            " file of their own: --configfile config/config.yaml changes.yaml"
        )
    sys.exit("\n".join(lines))

NOT_WRITABLE = not_writable([Path("results", CONFIG["run"]), Path("cache")])
if workflow.is_main_process:
    try:
        # Kept: it tells other runs that this one is alive.
        PRESENCE = enter(Path(".snakemake"), this_run())
    except OSError as error:
        sys.exit(f"this folder cannot be worked in: {error}")
    for line in (*PRESENCE.lines(), *NOT_WRITABLE):
        print(line, file=sys.stderr)


onstart:
    if NOT_WRITABLE:
        sys.exit(1)  # a dry run is let through


RUN = CONFIG["run"]
SOURCES = source_names(CONFIG)
PROMPT_SETS = prompt_set_names(CONFIG)
PROMPT_FILES = [f"<results>/evaluation/prompts/{name}.jsonl" for name in PROMPT_SETS]
EVALUATION_FILES = [*evaluation_files(CONFIG, Path.cwd()), *PROMPT_FILES]
SHARDS = shard_names(CONFIG["responses"]["shards"])
# Among the resources of rules, not the parameters: how target and trainer run makes nothing stale.
SERVING = CONFIG["serving"]
TRAINER = trainer_settings(CONFIG)
ONLINE = CONFIG["hidden_states"]["mode"] == "online"
TRAINING_GPUS = CONFIG["train"]["gpus"] + (SERVING["gpus"] if ONLINE else 0)
PUBLISHED_DRAFTERS = published_drafters(CONFIG)
FORMS = ("svg", "png")
SPEED_FORMS = FORMS if CONFIG["evaluate"]["backend"] == "vllm" else ()
REPORT_TEMPLATES = sorted(str(path) for path in Path("resources/report").iterdir())
KEEP_RESPONSES = CONFIG["responses"]["mode"] == "keep"
EVALUATIONS = ["<results>/evaluation.json"]
EVALUATIONS += (
    ["<results>/evaluation.published.json"] if "published" in CONFIG["evaluate"] else []
)


wildcard_constraints:
    source="|".join(map(re.escape, [*SOURCES, *PROMPT_SETS])),
    shard=r"\d+-of-\d+",


def settings(stage, name=""):
    """Return the canonical JSON of the settings of a stage."""
    return canonical(stage_settings(CONFIG, stage, name))


def corpus_to_tokenize():
    """Return the records that are tokenized: regenerated, or as the merge left them."""
    return f"<results>/{'merged' if KEEP_RESPONSES else 'responses'}/sharegpt.jsonl"


def published_manifest(section, key):
    """Return the manifest of the published drafter that a key names; nothing if it names none."""
    folder = drafter_folder(CONFIG, section, key)
    return f"{folder}/drafter.json" if folder else []
