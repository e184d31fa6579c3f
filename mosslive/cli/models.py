"""Which model a command uses: a folder or a repo id, its codec and voice, its device and engine.

Every command resolves names here, so that all of them accept the same ones. Downloads and builds
show progress on standard error. `config/published.py` has the ids, `checkpoint/hub.py` downloads.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, overload

import typer

from mosslive.cli.console import advance, byte_progress, err, step_progress
from mosslive.config.folders import BUNDLED, CODEC_FOLDER, Parts, find_parts, shipped_folder
from mosslive.config.published import COMPANIONS

if TYPE_CHECKING:
    from mosslive.checkpoint.engine_layout import BaseDtype
    from mosslive.server.settings import ServerSettings

DeviceOption = Annotated[
    str, typer.Option(help="Run on cpu or cuda; auto: cuda where there is a GPU.")
]
Fp8Choice = Annotated[
    str | None,
    typer.Option(
        "--fp8", metavar="trunk", help="On a GPU, store the trunk's matrices as float8 e4m3."
    ),
]
# Speaks for published models, which come without a voice. A few seconds of any voice will do.
DEFAULT_RECORDING = "question.flac"
_SOUND = (".wav", ".flac", ".ogg", ".mp3", ".m4a", ".webm", ".opus", ".aac")


@overload
def local(name: Path) -> Path: ...
@overload
def local(name: None) -> None: ...
def local(name: Path | None) -> Path | None:
    """The folder of this name; a repo id is downloaded. Other names stay as they are."""
    if name is None:
        return None
    from mosslive.checkpoint.hub import local_folder

    return local_folder(name, stage)


def device_of(name: str, model: Path | None = None) -> str:
    """`--device` of a command, with "auto" resolved. That is the CPU for the bundled model: it
    answers in real time there, at once, and nobody has tried it on a GPU."""
    from mosslive.engine.read import AUTO, pick_device

    if name == AUTO and model is not None and model in (Path(BUNDLED), shipped_folder()):
        return "cpu"
    return pick_device(name)


@contextmanager
def stage(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar, in bytes if `total` is large; none if there is nothing to do."""
    if not total:
        yield lambda _: None
        return
    bar = byte_progress if total > 1_000_000 else step_progress
    with bar(label, total) as progress:
        yield lambda count: advance(progress, count)


Say = Callable[[str], None]  # gets one sentence about what happens


def say(line: str) -> None:
    err.print(line, soft_wrap=True, markup=False)


def model_parts(
    model: Path, codec: Path | None = None, voice: Path | None = None, say: Say = say
) -> Parts:
    """The parts of a conversation, downloaded where they are repo ids. A published model gets the
    codec its publishers use it with, and a voice that ships with this package."""
    from mosslive.checkpoint.hub import repo_name

    repo, codec_repo = repo_name(model), repo_name(codec) if codec else None
    home = local(model)
    if repo and codec is None and not (home / CODEC_FOLDER).is_dir():
        pair = COMPANIONS.get(repo.id)
        codec_repo = repo_name(pair.codec) if pair else None
        codec = Path(pair.codec) if pair else None
    parts = find_parts(home, local(codec), voice)
    recording = shipped_folder() / DEFAULT_RECORDING
    if (repo or codec_repo) and parts.codec and not parts.voice and recording.is_file():
        say("No --voice was given: speaking with a voice that ships with mosslive.")
        return replace(parts, voice=recording)
    return parts


@dataclass(frozen=True)
class Loadable:
    """What is loaded: `dtype` is None for an engine folder, which has its own."""

    model: Path
    dtype: str | None


def engine_of(
    model: Path, device: str, dtype: str | None, fp8: str | None, say: Say = say
) -> Loadable:
    """On a GPU the engine folder of a published checkpoint, built at its first use; on a CPU the
    checkpoint itself."""
    if dtype not in (None, "float32", "bfloat16"):
        raise typer.BadParameter(f"--dtype is {dtype!r}; allowed: float32, bfloat16")
    if fp8 not in (None, "trunk"):
        raise typer.BadParameter(f"--fp8 is {fp8!r}; allowed: trunk")
    if device == "cpu":
        if fp8:
            raise typer.BadParameter(
                "--fp8 needs a GPU; for a CPU run mosslive build MODEL OUT --fp8 trunk"
            )
        return Loadable(model, dtype)
    from mosslive.build.engine_cache import EngineCache
    from mosslive.checkpoint.engine_folder import is_engine
    from mosslive.cli.build import free_running_replies
    from mosslive.engine.read import read_device

    if is_engine(model) and fp8:
        raise typer.BadParameter("--fp8 is for checkpoints; an engine folder has its precision")
    base: BaseDtype = "float32" if dtype == "float32" else "bfloat16"
    cache = EngineCache.default(stage, say)
    replies = free_running_replies() if fp8 else None
    engine = cache.engine(model, read_device(device), base, bool(fp8), replies)
    return Loadable(engine, dtype) if engine == model else Loadable(engine, None)


def served(settings: "ServerSettings") -> "ServerSettings":
    """Settings of a server with every name resolved to a folder or a device."""
    # Without a terminal, programs read standard error, where every line is a record of the log.
    tell = say if err.is_terminal else logging.getLogger("mosslive.server").info
    device = device_of(settings.device, settings.model)
    parts = model_parts(settings.model, settings.codec, settings.voice, tell)
    loadable = engine_of(parts.model, device, settings.dtype, settings.fp8, tell)
    shipped = shipped_folder() / DEFAULT_RECORDING
    return replace(
        settings,
        device=device,
        model=loadable.model,
        dtype=loadable.dtype,
        fp8=None,
        codec=parts.codec,
        # The codec's own voice is found again, so that it does not count as the user's choice.
        voice=shipped if parts.voice == shipped else settings.voice,
        vocoder=local(settings.vocoder),
    )


def once(argument: Path | None, option: Path | None) -> Path | None:
    """The model of a command that takes it with and without `--model`."""
    if argument and option:
        raise typer.BadParameter(
            f"the model is given twice: {argument} and --model {option}; give one of them"
        )
    return argument or option


def leading_model(arguments: list[Path]) -> Path | None:
    """The first argument, if it names a model and not a sound file."""
    from mosslive.checkpoint.hub import repo_name

    if not arguments or arguments[0].suffix.lower() in _SOUND:
        return None
    first = arguments[0]
    return first if first.is_dir() or repo_name(first) or str(first) == BUNDLED else None
