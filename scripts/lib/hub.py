"""The Hugging Face hub, with one clear line for whatever goes wrong there."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
from huggingface_hub.errors import (
    GatedRepoError,
    LocalEntryNotFoundError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)


@contextmanager
def hub_errors(repository: str, revision: str, what: str = "") -> Iterator[None]:
    """Turn the errors of the hub's client into messages that say what to do.

    Args:
        what: the file that is asked for, if it is one.

    Raises:
        ValueError: the hub does not give what the block asks for.
    """
    try:
        yield
    except GatedRepoError as error:
        raise ValueError(
            f"{repository} is gated: accept its terms on the hub and set HF_TOKEN"
        ) from error
    except RepositoryNotFoundError as error:
        raise ValueError(f"{repository} is not on the hub, or needs HF_TOKEN to be seen") from error
    except RevisionNotFoundError as error:
        raise ValueError(f"{repository} has no revision {revision}") from error
    except RemoteEntryNotFoundError as error:
        raise ValueError(f"{repository} has no file {what} at revision {revision}") from error
    except (httpx2.HTTPError, LocalEntryNotFoundError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{repository} {what}: {reason}") from error
