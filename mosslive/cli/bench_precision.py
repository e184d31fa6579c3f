"""`mosslive bench codec-precision`: measures what lower precision does to codes and sound."""

from pathlib import Path
from typing import Annotated

import typer

from mosslive.cli.demo import QUESTION
from mosslive.cli.models import local
from mosslive.config.folders import BUNDLED, find_parts, shipped_folder


def codec_precision(
    recordings: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="SOUND", help="Encode these recordings. Default: the bundled question."
        ),
    ] = None,
    codec: Annotated[
        Path, typer.Option("--codec", metavar="DIR", help="Measure this model or codec folder.")
    ] = Path(BUNDLED),
    voice: Annotated[
        Path | None, typer.Option(help="Speak with this .voice file or recording.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print only the JSON line.")] = False,
) -> None:
    """Measure flipped codes and moved sound in half precision, against another seed of the noise.

    Runs on the CPU. The last line of the output is JSON.
    """
    codec = local(codec)
    parts = find_parts(codec, codec, voice)
    if not parts.codec or not parts.voice:
        raise typer.BadParameter("give --codec and --voice: a folder with both, or one each")
    from dataclasses import asdict

    from rich.table import Table

    from mosslive.bench.codec.precision_effect import measure_precision
    from mosslive.cli.console import out, print_json
    from mosslive.talk.cpu_threads import shared_cpu_threads

    chosen = recordings or [shipped_folder() / QUESTION]
    with shared_cpu_threads("cpu"):  # its operations are too small for many threads
        codes, sounds = measure_precision(parts.codec, parts.voice, chosen)
    if not json:
        table = Table("encoder", "codes", "flipped", "share")
        for row in codes:
            share = f"{row.flipped / row.codes:.2%}"
            table.add_row(row.precision, str(row.codes), str(row.flipped), share)
        out.print(table)
        table = Table("sound", "mel, dB", "log spectrum, dB", "signal to noise, dB")
        for sound in sounds:
            table.add_row(
                sound.what,
                *(f"{x:.3f}" for x in (sound.mel_db, sound.spectrum_db)),
                f"{sound.snr_db:.1f}",
            )
        out.print(table)
    print_json({"encoder": [*map(asdict, codes)], "sound": [*map(asdict, sounds)]})
