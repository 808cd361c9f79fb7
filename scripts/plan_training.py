"""Show what the training of a configuration would do; needs no GPU, no weights and no data.

python scripts/plan_training.py --configfile config/qwen3.6-27b.yaml [--target-config config.json]
"""

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import Any

import yaml

from lib.configuration import ConfigurationError, complete, load_schema
from lib.plan_text import plan_text
from lib.training_plan import Assumptions, plan_training

SCHEMA = Path(__file__).parents[1] / "config/schema.yaml"


def main() -> None:
    """Show the plan that the command line asks for."""
    usual = Assumptions()
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--configfile", type=Path, required=True, help="configuration of the run")
    parser.add_argument("--target-config", type=Path, help="the target's config.json")
    for name, kind, meaning in (
        ("gpu-memory-gib", float, "memory of a GPU in GiB"),
        ("conversations", int, "how many there are; the quotas of the sources without it"),
        ("conversation-tokens", float, "tokens to expect of a conversation"),
        ("supervised-share", float, "share of supervised tokens to expect"),
        ("teraflops", float, "useful operations of a GPU a second, in 10^12; a guess"),
        ("server-rate", float, "tokens a second that the server reads, if measured"),
        ("trainer-rate", float, "tokens a second of one process of the trainer, if measured"),
    ):
        default = getattr(usual, name.replace("-", "_"))
        shown = f" ({default:g})" if default is not None else ""
        parser.add_argument(f"--{name}", type=kind, default=default, help=meaning + shown)
    args = vars(parser.parse_args())
    path, target = args.pop("configfile"), args.pop("target_config")
    # The commands are those of a job of its own, whatever GPUs this process may use.
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    logging.disable(logging.WARNING)
    try:
        config = complete(_read(path), load_schema(SCHEMA), Path.cwd())
        plan = plan_training(config, Path.cwd(), Assumptions(**args), _folder(target))
    except ConfigurationError as error:
        sys.exit("\n".join(f"configuration: {line}" for line in str(error).splitlines()))
    except (ValueError, OSError) as error:
        sys.exit(f"configuration: {error}")
    print(plan_text(plan), end="")


def _read(path: Path) -> dict[str, Any]:
    """Return the content of a configuration file.

    Raises:
        ValueError: it is no YAML, or holds something else.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is no YAML ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no keys")
    return content


def _folder(target: Path | None) -> Path | None:
    """Return the folder of a target's configuration.

    Raises:
        ValueError: the file is not there, or is not called so that others would find it.
    """
    if target is None:
        return None
    if target.name != "config.json" or not target.is_file():
        raise ValueError(f"--target-config: {target} is no file called config.json")
    return target.parent


if __name__ == "__main__":
    main()
