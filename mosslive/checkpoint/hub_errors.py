"""Errors of downloads in one sentence each: what happened, and what to do.

Translates the exceptions of `huggingface_hub` and of its HTTP client. Knows nothing of files.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from mosslive.errors import MossliveError, name_list


class NoSuchModel(MossliveError):
    """The name is neither a folder nor a repo that can be read."""


class DownloadFailed(MossliveError):
    """The repo exists and a file of it could not be fetched. A new attempt goes on from there."""


class Damaged(DownloadFailed):
    """Files do not have the hash that the hub states. They were removed."""

    def __init__(self, repo: str, files: list[str]) -> None:
        super().__init__(
            f"{repo}: the hash of {name_list(files)} differs from the one the hub states; removed "
            f"from the cache. Run the command again to download it anew."
        )


@contextmanager
def explain(repo: str, revision: str | None) -> Iterator[None]:
    """Turns every expected error of a download into `NoSuchModel` or `DownloadFailed`."""
    from huggingface_hub import errors

    name = repo if revision is None else f"{repo}@{revision}"
    # Of the HTTP client, and of the transfer in Rust, whose errors have no class of their own.
    transfer: tuple[type[Exception], ...] = (errors.HTTPError, RuntimeError)  # type: ignore[attr-defined]
    transfer += tuple(filter(None, [getattr(errors, "XetDownloadError", None)]))
    try:
        yield
    except errors.GatedRepoError:
        raise _none(name, f"access to it is restricted; {_permission(repo)}") from None
    except errors.RepositoryNotFoundError:
        reason = (
            f"{_endpoint()} has no such repo, or it is private; check the name, or set HF_TOKEN"
        )
        raise _none(name, reason) from None
    except errors.RevisionNotFoundError:
        raise _none(name, f"{repo} has no revision {revision!r}") from None
    except errors.HFValidationError as error:
        raise _none(name, str(error).split(":")[0]) from None
    except errors.LocalEntryNotFoundError as error:  # the hub did not answer, or is not to be asked
        raise _none(name, _unreachable(name, error)) from None
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403):
            raise _none(name, f"{_endpoint()} refused the token; {_permission(repo)}") from None
        raise DownloadFailed(f"{name}: {_endpoint()} answered {status}; try again later") from None
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DownloadFailed(f"{name}: the disk is full: {error.filename or error}") from None
        raise DownloadFailed(_broken(name, error)) from None
    except transfer as error:
        raise DownloadFailed(_broken(name, error)) from None


def _none(name: str, reason: str) -> NoSuchModel:
    return NoSuchModel(f"No such folder: {name} (and not a reachable repo id: {reason}).")


def _broken(name: str, error: Exception) -> str:
    line = (str(error) or type(error).__name__).splitlines()[0]
    return f"{name}: the download broke off: {line} Run the command again: it keeps whole files."


def _permission(repo: str) -> str:
    return f"accept its terms at {_endpoint()}/{repo} and set HF_TOKEN, or run `hf auth login`"


def _unreachable(name: str, error: Exception) -> str:
    from huggingface_hub import constants, errors

    part = isinstance(error, getattr(errors, "IncompleteSnapshotError", ()))  # since 2.0
    held = "the cache has only a part of it" if part else "it is not in the cache"
    if constants.HF_HUB_OFFLINE:
        return f"HF_HUB_OFFLINE is set and {held}; run `mosslive pull {name}` with a network"
    cause = error.__cause__ or error
    line = (str(cause) or type(cause).__name__).splitlines()[0].rstrip(".")
    return f"no connection to {_endpoint()} ({line}), and {held}"


def _endpoint() -> str:
    from huggingface_hub import constants

    return str(constants.ENDPOINT)
