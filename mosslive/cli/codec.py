"""`mosslive codec`: sound to codes, codes to sound, and both in a row."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mosslive.cli.codes_file import read_codes
from mosslive.cli.console import advance, err, print_json, step_progress
from mosslive.cli.voice import CodecOption, JsonOption, VocoderOption
from mosslive.config import SECONDS_PER_CODE, refuse

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mosslive.codec import Codec, Sound, Voice

codec = typer.Typer(help="Sound to codes and codes to sound.", no_args_is_help=True)

SoundArgument = Annotated[Path, typer.Argument(metavar="IN", help="WAV, FLAC or OGG.")]
VoiceOption = Annotated[
    Path, typer.Option("--voice", help="A .voice file, or a recording of the speaker.")
]
OutputOption = Annotated[Path, typer.Option("-o", "--output", help="The WAV file to write.")]
ChunkOption = Annotated[
    int, typer.Option(help="0: the whole reply at once; 5 or 25: as a live stream renders it.")
]
SeedOption = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of the vocoder's noise.")]

_CODES_PER_16_SECONDS = 200
_OWN_VOICE_SECONDS = 30
_BATCH_CODES = 25  # between two moves of the progress bar


@codec.callback()
def _group() -> None:
    pass


@codec.command()
def encode(sound: SoundArgument, codec: CodecOption, as_json: JsonOption = False) -> None:
    """Print the codes of a recording, 12.5 a second."""
    from mosslive.codec import load_codec, read_sound

    heard = read_sound(sound)
    loaded = load_codec(codec)
    with _hearing(heard, as_json) as count:
        codes = loaded.encode(heard.wave, heard.rate_hz, count)
    if as_json:
        print_json({"codes": codes, "seconds": round(len(heard.wave) / heard.rate_hz, 3)})
    else:
        print(*codes)


@codec.command()
def decode(
    codes: Annotated[
        str, typer.Argument(metavar="CODES", help="JSON list or numbers; - is stdin.")
    ],
    codec: CodecOption,
    voice: VoiceOption,
    output: OutputOption,
    chunk: ChunkOption = 0,
    seed: SeedOption = 0,
    vocoder: VocoderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Speak codes in a voice and write a WAV file."""
    from mosslive.codec import load_codec

    listed = read_codes(codes)
    loaded = load_codec(codec, vocoder=vocoder)
    _write(loaded, listed, loaded.voice(voice), output, chunk, seed, as_json)


@codec.command()
def resynth(
    sound: SoundArgument,
    codec: CodecOption,
    output: OutputOption,
    voice: Annotated[
        Path | None,
        typer.Option("--voice", help="Another speaker; default: the recording's first 30 s."),
    ] = None,
    chunk: ChunkOption = 0,
    seed: SeedOption = 0,
    vocoder: VocoderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Encode a recording and speak its codes again: what survives the codec."""
    from mosslive.codec import Sound, load_codec, read_sound

    heard = read_sound(sound)
    loaded = load_codec(codec, vocoder=vocoder)
    with _hearing(heard, as_json) as count:
        codes = loaded.encode(heard.wave, heard.rate_hz, count)
    # A prompt counts as part of the reply's length, and half a minute tells all about a speaker.
    own = Sound(heard.wave[: _OWN_VOICE_SECONDS * heard.rate_hz], heard.rate_hz)
    spoken = loaded.voice(voice or own)
    _write(loaded, codes, spoken, output, chunk, seed, as_json)


def _hearing(sound: "Sound", as_json: bool) -> AbstractContextManager[Callable[[int], None]]:
    """A bar that moves with every 30 s of sound."""
    total = -(-len(sound.wave) * _CODES_PER_16_SECONDS // (16 * sound.rate_hz))
    return _counting("hearing", total, as_json)


@contextmanager
def _counting(label: str, total: int, as_json: bool) -> Iterator[Callable[[int], None]]:
    """Yields what is to be told of progress; beside JSON nothing is shown."""
    if as_json:
        yield lambda _: None
        return
    with step_progress(label, total) as progress:
        yield lambda count: advance(progress, count)


def _write(
    codec: "Codec",
    codes: list[int],
    voice: "Voice",
    output: Path,
    chunk: int,
    seed: int,
    as_json: bool,
) -> None:
    from mosslive.codec import write_sound

    wave = _rendered(codec, codes, voice, chunk, seed, as_json)
    write_sound(output, wave, codec.sample_rate)
    seconds = len(wave) / codec.sample_rate
    if as_json:
        document = {"output": str(output), "codes": len(codes), "samples": len(wave)}
        print_json(document | {"sample_rate": codec.sample_rate, "seconds": round(seconds, 3)})
    else:
        err.print(f"wrote {output}: {len(codes)} codes, {seconds:.2f} s", soft_wrap=True)


def _rendered(
    codec: "Codec", codes: list[int], voice: "Voice", chunk: int, seed: int, as_json: bool
) -> "NDArray[np.float32]":
    import numpy as np

    if chunk not in (0, 5, 25):
        raise refuse("chunk", chunk, "0 (whole), 5 or 25")
    if not chunk:
        return codec.decode(codes, voice, seed)
    # Of its own size: this is the only reply, and any that the flow can say must fit.
    seconds = SECONDS_PER_CODE * (voice.codes + len(codes) + chunk)
    stream = codec.decoder_stream(voice, chunk, seed=seed, pool_seconds=seconds)
    pieces = []
    with _counting("speaking", len(codes), as_json) as count:
        for first in range(0, len(codes), _BATCH_CODES):
            some = codes[first : first + _BATCH_CODES]
            pieces.append(stream.push(some))
            count(len(some))
        pieces.append(stream.finish())
    return np.concatenate(pieces)
