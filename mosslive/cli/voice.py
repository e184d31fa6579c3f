"""`mosslive voice`: prepares a voice once, for every reply."""

from pathlib import Path
from typing import Annotated

import typer

from mosslive.cli.command_group import CommandGroup
from mosslive.cli.console import print_json
from mosslive.cli.models import local
from mosslive.config import SECONDS_PER_CODE
from mosslive.config.codec_precision import HELP
from mosslive.errors import MossliveError

voice = CommandGroup("Prepare voices.")

CodecOption = Annotated[
    Path,
    typer.Option(
        "--codec", metavar="DIR", help="Load this codec: a folder, its parent or repo id."
    ),
]
VocoderOption = Annotated[
    Path | None,
    typer.Option(
        "--vocoder",
        metavar="DIR",
        help="Use this BigVGAN, trained on the flow's mel, instead of the codec's HiFT.",
    ),
]
CodecPrecisionOption = Annotated[
    str | None,
    typer.Option("--codec-precision", help=f"{HELP}; default: by device, float32 or mixed."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@voice.callback()
def _group() -> None:
    pass


@voice.command()
def make(
    recording: Annotated[
        Path, typer.Argument(help="Read clean speech of one person: WAV, FLAC or OGG.")
    ],
    codec: CodecOption,
    output: Annotated[Path, typer.Option("-o", "--output", help="Write this .voice file.")],
    as_json: JsonOption = False,
) -> None:
    """Turn a recording into a .voice file: codes, mel and speaker vector."""
    from mosslive.checkpoint.capabilities import codec_capabilities

    folder = local(codec)
    if not codec_capabilities(folder).voices:
        raise MossliveError(
            f"{codec}: this model was trained on one voice and would not speak with another"
        )
    from mosslive.codec import load_codec

    made = load_codec(folder).voice(recording)
    made.save(output)
    seconds = made.codes * SECONDS_PER_CODE
    if as_json:
        document = {"voice": str(output), "codes": made.codes, "codec": made.codec}
        print_json(document | {"seconds": round(seconds, 2)})
    else:
        print(f"wrote {output}: {made.codes} codes, {seconds:.2f} s")
