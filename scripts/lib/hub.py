"""The Hugging Face hub: files at a commit, and one clear line for whatever goes wrong there."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx2
from huggingface_hub import (
    HfApi,
    get_cached_repo_tree,
    get_hf_file_metadata,
    hf_hub_url,
    is_offline_mode,
    try_to_load_from_cache,
)
from huggingface_hub.errors import (
    CachedRepoTreeNotFoundError,
    DisabledRepoError,
    GatedRepoError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import http_get
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]
from tqdm import tqdm

from lib.console import Progress


@dataclass(frozen=True)
class Repository:
    """A repository of the hub at a commit.

    Attributes:
        kind: what it holds.
        name: with its owner, such as `Qwen/Qwen3.6-27B`.
        revision: the commit.
    """

    kind: Literal["model", "dataset"]
    name: str
    revision: str

    def sizes(self) -> dict[str, int]:
        """Return the size of each file at the top of the repository, by name.

        The client keeps the list of a repository that it has downloaded; that needs no network.

        Raises:
            ValueError: the server is not the hub.
        """
        try:
            entries = get_cached_repo_tree(self.name, repo_type=self.kind, revision=self.revision)
        except CachedRepoTreeNotFoundError:
            entries = self._listed()
        return {entry.path: entry.size for entry in entries if "/" not in entry.path}

    def _listed(self) -> list[RepoFile]:
        try:
            entries = list(
                HfApi().list_repo_tree(self.name, repo_type=self.kind, revision=self.revision)
            )
        except (ValueError, KeyError, TypeError) as error:
            raise self.not_the_hub("its list of files") from error
        return [entry for entry in entries if isinstance(entry, RepoFile)]

    def not_the_hub(self, what: str) -> ValueError:
        """Return the error of an answer that does not come from the hub."""
        return ValueError(
            f"{self.name}: the answer for {what} is not the hub's; check HF_ENDPOINT and the proxy"
        )


@dataclass(frozen=True)
class HubFile:
    """A file of a repository."""

    repository: Repository
    name: str

    @property
    def _url(self) -> str:
        repository = self.repository
        return hf_hub_url(
            repository.name, self.name, repo_type=repository.kind, revision=repository.revision
        )

    def cached(self) -> tuple[Path | None, str | None]:
        """Return the copy in the client's own cache and the SHA-256 that the cache states."""
        repository = self.repository
        found = try_to_load_from_cache(
            repository.name, self.name, revision=repository.revision, repo_type=repository.kind
        )
        if not isinstance(found, str):
            return None, None
        path = Path(found)
        return path, _as_sha256(path.readlink().name if path.is_symlink() else None)

    def stated(self) -> tuple[int | None, str | None]:
        """Return the size and the SHA-256 that the hub states, each None if it does not.

        The hub states the SHA-256 of large files; small ones are in git, whose hash is another.

        Raises:
            ValueError: the server is not the hub.
        """
        metadata = get_hf_file_metadata(self._url, retry_on_errors=True)
        if metadata.commit_hash != self.repository.revision:
            raise self.repository.not_the_hub(self.name)
        return metadata.size, _as_sha256(metadata.etag)

    def download(self, size: int | None, partial: Path, progress: Progress) -> None:
        """Download to `partial`, going on where an interrupted download stopped.

        `hf_hub_download` would begin again: each try of it has a temporary file of its own
        (huggingface/huggingface_hub#4228).
        """
        with partial.open("ab") as file:
            start = file.tell()
            if size is not None and start > size:
                start = file.truncate(0)
            http_get(
                self._url,  # redirects to the storage, where the client does not send the token
                file,
                resume_size=start,
                headers=build_hf_headers(),
                expected_size=size,
                displayed_filename=self.name,
                tqdm_class=_bar(progress),
            )


@contextmanager
def hub_errors(repository: Repository, what: str = "") -> Iterator[None]:
    """Turn the errors of the hub's client into messages that say what to do.

    Args:
        what: the file that is asked for, if it is one.

    Raises:
        ValueError: the hub does not give what the block asks for.
    """
    name, revision = repository.name, repository.revision
    wanted = f"{name}: {what}" if what else name
    again = "run the same command again, it goes on from here"
    _check_token()
    try:
        yield
    except GatedRepoError as error:
        raise ValueError(
            f"{name} is gated: accept its terms on the hub, and set HF_TOKEN to a token of "
            "that account"
        ) from error
    except RepositoryNotFoundError as error:
        raise ValueError(
            f"{name} is not on the hub, or is private: correct the configuration, or set "
            "HF_TOKEN to a token that may read it"
        ) from error
    except DisabledRepoError as error:
        raise ValueError(f"{name} is disabled on the hub: use another") from error
    except RevisionNotFoundError as error:
        raise ValueError(
            f"{name} has no revision {revision}: take one from its history on the hub"
        ) from error
    except RemoteEntryNotFoundError as error:
        raise ValueError(
            f"{name} has no file {what} at revision {revision}: correct the configuration"
        ) from error
    except HfHubHTTPError as error:
        status, reason = error.response.status_code, error.response.reason_phrase
        if status in (401, 403):
            raise ValueError(
                f"{wanted}: the hub refuses the token ({status} {reason}): "
                "set HF_TOKEN to one that may read it, or unset it"
            ) from error
        advice = (
            f"wait and {again}" if status in (408, 429) or status >= 500 else "check HF_ENDPOINT"
        )
        raise ValueError(f"{wanted}: the hub answers {status} {reason}: {advice}") from error
    except (httpx2.HTTPError, OSError) as error:
        if getattr(error, "errno", None) is not None:
            raise  # this machine's, not the client's
        if is_offline_mode():
            raise ValueError(
                f"{wanted} is not here and HF_HUB_OFFLINE is set: unset it to fetch what is missing"
            ) from error
        problem = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
        raise ValueError(f"{wanted}: {problem}: check the connection and {again}") from error


def _check_token() -> None:
    # The client's own error would show the token.
    if not re.fullmatch("[ -~]*", build_hf_headers().get("authorization", "")):
        raise ValueError("the hub's token has characters that cannot be sent: set HF_TOKEN again")


def _as_sha256(text: str | None) -> str | None:
    return text if text and re.fullmatch("[0-9a-f]{64}", text) else None


def _bar(progress: Progress) -> type[tqdm]:
    """Return a class that the client takes for a bar and that moves `progress` instead."""

    class Bar(tqdm):
        def __init__(self, *, total: int | None = None, initial: int = 0, **_: Any):
            super().__init__(disable=True)
            if total is not None:
                progress.reach(0, total - initial)

        def update(self, n: float | None = 1) -> None:
            progress.advance(int(n or 0))

    return Bar
