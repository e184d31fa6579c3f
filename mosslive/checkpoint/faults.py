"""Everything that can be wrong with a checkpoint, one class each, so that callers can tell."""

from mosslive.errors import MossliveError, name_list


class CheckpointError(MossliveError):
    """A model folder that cannot be used. `names`: every tensor or file concerned."""

    title = "unusable checkpoint"

    def __init__(self, names: list[str], detail: str = "", shown: list[str] | None = None) -> None:
        self.names = names
        self.detail = detail
        self.shown = shown or names  # the names with what is wrong with each, for the message
        super().__init__(self.line())

    def line(self) -> str:
        counted = f"{self.title} ({len(self.names)}): {name_list(self.shown)}"
        return f"{counted}; {self.detail}" if self.detail else counted


class NoWeights(CheckpointError):
    title = "no weight files"


class BadIndex(CheckpointError):
    title = "bad index"


class DanglingIndex(CheckpointError):
    title = "the index points at what is not there"


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
    """An engine folder that cannot be used."""

    title = "unusable engine"


class NotAnEngine(EngineError):
    title = "not an engine folder"


class EngineVersion(EngineError):
    title = "an engine of another format version"


class BadManifest(EngineError):
    title = "bad engine manifest"


class IncompleteEngine(EngineError):
    title = "engine files that are missing or cut"


class DamagedEngine(EngineError):
    title = "engine contents that changed since the build"


class FailedProbes(EngineError):
    title = "the engine does not reproduce its reference"
