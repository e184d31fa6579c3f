"""`mosslive synth`: writes random checkpoints in the published layouts."""

from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from mosslive.cli.console import byte_progress, print_json
from mosslive.cli.voice import JsonOption
from mosslive.errors import MossliveError


class SizeOption(StrEnum):
    nano = "nano"
    small = "small"
    full = "full"


class PartOption(StrEnum):
    lm = "lm"
    codec = "codec"
    bigvgan = "bigvgan"


class MelOption(StrEnum):
    published = "published"
    flow = "flow"


def synth(
    folder: Annotated[Path, typer.Argument(metavar="OUT", help="Write the folders here.")],
    size: Annotated[
        SizeOption,
        typer.Option(
            help="Choose the language model: nano 0.4 M parameters, small 121 M, full 9.1 B."
        ),
    ] = SizeOption.nano,
    seed: Annotated[int, typer.Option(min=0, help="Set the random seed.")] = 0,
    vocab: Annotated[
        Path | None,
        typer.Option(help="Use the vocabulary of this tiktoken ranks file, such as Qwen's."),
    ] = None,
    bigvgan_mel: Annotated[
        MelOption,
        typer.Option(
            help="Choose the mel of OUT/bigvgan: published (100 bands), or flow, for --vocoder."
        ),
    ] = MelOption.published,
    only: Annotated[PartOption | None, typer.Option(help="Write one part only.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a random model with the files, names and shapes of the published one.

    OUT/lm is the language model, OUT/codec the codec, OUT/bigvgan a vocoder. They run like the real
    ones, but their replies are noise; use them for tests, benchmarks and first steps.
    """
    if only is not PartOption.lm:
        _require_voice_extra()  # before anything is written
    written: list[Path] = []

    def report(target: Path) -> None:
        written.append(target)
        if not as_json:
            print(f"wrote {target}")  # not with rich, which would wrap a long path

    if only in (None, PartOption.lm):
        from mosslive.checkpoint import synthesise

        with byte_progress("writing", 0) as progress:
            task = progress.task_ids[0]
            target = synthesise(
                folder,
                size.value,
                seed,
                vocab,
                lambda done, total: progress.update(task, completed=done, total=total),
            )
        report(target)
    if only in (None, PartOption.codec):
        from mosslive.codec.synth import synthesise_codec

        report(synthesise_codec(folder, size.value, seed))
    if only in (None, PartOption.bigvgan):
        from mosslive.codec.synth import synthesise_bigvgan

        report(synthesise_bigvgan(folder, size.value, seed, bigvgan_mel.value))
    if as_json:
        print_json({"written": [*map(str, written)], "size": size.value, "seed": seed})


def _require_voice_extra() -> None:
    lacking = [name for name in ("yaml", "onnx", "onnxruntime") if find_spec(name) is None]
    if lacking:
        raise MossliveError(
            f"writing a codec needs {', '.join(lacking)}: pip install 'mosslive[voice]', or write "
            f"the language model alone with --only lm"
        )
