"""One error class per kind of checkpoint fault."""

from mosslive.errors import MossliveError, name_list


class CheckpointError(MossliveError):
    """A model folder is unusable. `names`: every affected tensor or file."""

    title = "unusable checkpoint"

    def __init__(self, names: list[str], detail: str = "", shown: list[str] | None = None) -> None:
        self.names = names
        self.detail = detail
        self.shown = shown or names  # for the message: each name with what is wrong
        super().__init__(self.line())

    def line(self) -> str:
        counted = f"{self.title} ({len(self.names)}): {name_list(self.shown)}"
        return f"{counted}; {self.detail}" if self.detail else counted


class NoWeights(CheckpointError):
    title = "no weight files"


class BadIndex(CheckpointError):
    title = "bad index"


class DanglingIndex(CheckpointError):
    title = "the index lists missing files or tensors"


class TruncatedShard(CheckpointError):
    title = "truncated shards"


class MalformedShard(CheckpointError):
    title = "malformed shards"


class DuplicateTensors(CheckpointError):
    title = "tensors stored twice"


class MissingTensors(CheckpointError):
    title = "missing tensors"


class UnexpectedTensors(CheckpointError):
    title = "unexpected tensors"


class MisshapedTensors(CheckpointError):
    title = "tensors of the wrong shape"


class WrongDtype(CheckpointError):
    title = "tensors of the wrong dtype"


class NonFiniteValues(CheckpointError):
    title = "tensors with NaN or infinite values"


class EngineError(CheckpointError):
    """An engine folder is unusable."""

    title = "unusable engine"


class NotAnEngine(EngineError):
    title = "not an engine folder"


class EngineVersion(EngineError):
    title = "unsupported engine format version"


class BadManifest(EngineError):
    title = "bad engine manifest"


class IncompleteEngine(EngineError):
    title = "missing or truncated engine files"


class DamagedEngine(EngineError):
    title = "engine files changed since the build"


class FailedProbes(EngineError):
    title = "the engine does not reproduce its reference"
