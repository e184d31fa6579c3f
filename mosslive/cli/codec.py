"""`mosslive codec`: audio → codes, codes → audio, and both in sequence."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mosslive.cli.codes_file import read_codes
from mosslive.cli.command_group import CommandGroup
from mosslive.cli.console import advance, err, print_json, step_progress
from mosslive.cli.models import local
from mosslive.cli.voice import CodecOption, CodecPrecisionOption, JsonOption, VocoderOption
from mosslive.config import SECONDS_PER_CODE, refuse
from mosslive.config.codec_precision import codec_precision as precision_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mosslive.codec import Codec, Sound, Voice

codec = CommandGroup("Convert audio to codes and codes to audio.")

SoundArgument = Annotated[
    Path, typer.Argument(metavar="IN", help="Read this WAV, FLAC or OGG file.")
]
VoiceOption = Annotated[
    Path, typer.Option("--voice", help="Speak with this .voice file or recording.")
]
OutputOption = Annotated[Path, typer.Option("-o", "--output", help="Write this WAV file.")]
ChunkOption = Annotated[
    int, typer.Option(help="Render as a live stream in chunks of 5 or 25 codes; 0: at once.")
]
SeedOption = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed the vocoder's noise.")]

_CODES_PER_16_SECONDS = 200
_OWN_VOICE_SECONDS = 30
_BATCH_CODES = 25  # per update of the progress bar


@codec.callback()
def _group() -> None:
    pass


@codec.command()
def encode(
    sound: SoundArgument,
    codec: CodecOption,
    codec_precision: CodecPrecisionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the codes of a recording, 12.5 per second."""
    from mosslive.codec import load_codec, read_sound

    heard = read_sound(sound)
    loaded = load_codec(local(codec), **precision_of(codec_precision, "cpu").load_options())
    with _encoding_bar(heard, as_json) as count:
        codes = loaded.encode(heard.wave, heard.rate_hz, count)
    if as_json:
        print_json({"codes": codes, "seconds": round(len(heard.wave) / heard.rate_hz, 3)})
    else:
        print(*codes)


@codec.command()
def decode(
    codes: Annotated[
        str, typer.Argument(metavar="CODES", help="Read codes from this file, - for stdin.")
    ],
    codec: CodecOption,
    voice: VoiceOption,
    output: OutputOption,
    chunk: ChunkOption = 0,
    seed: SeedOption = 0,
    vocoder: VocoderOption = None,
    codec_precision: CodecPrecisionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Render codes as speech with a voice and write a WAV file."""
    from mosslive.codec import load_codec

    listed = read_codes(codes)
    options = precision_of(codec_precision, "cpu").load_options()
    loaded = load_codec(local(codec), vocoder=local(vocoder), **options)
    _write(loaded, listed, loaded.voice(voice), output, chunk, seed, as_json)


@codec.command()
def resynth(
    sound: SoundArgument,
    codec: CodecOption,
    output: OutputOption,
    voice: Annotated[
        Path | None,
        typer.Option("--voice", help="Use another voice (default: the recording's first 30 s)."),
    ] = None,
    chunk: ChunkOption = 0,
    seed: SeedOption = 0,
    vocoder: VocoderOption = None,
    codec_precision: CodecPrecisionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Encode a recording and render its codes again, to hear what the codec keeps."""
    from mosslive.codec import Sound, load_codec, read_sound

    heard = read_sound(sound)
    options = precision_of(codec_precision, "cpu").load_options()
    loaded = load_codec(local(codec), vocoder=local(vocoder), **options)
    with _encoding_bar(heard, as_json) as count:
        codes = loaded.encode(heard.wave, heard.rate_hz, count)
    # The voice prompt counts toward the maximum length, and 30 s are enough for a voice.
    own = Sound(heard.wave[: _OWN_VOICE_SECONDS * heard.rate_hz], heard.rate_hz)
    spoken = loaded.voice(voice or own)
    _write(loaded, codes, spoken, output, chunk, seed, as_json)


def _encoding_bar(sound: "Sound", as_json: bool) -> AbstractContextManager[Callable[[int], None]]:
    """A progress bar that advances with every 30 s of audio."""
    total = -(-len(sound.wave) * _CODES_PER_16_SECONDS // (16 * sound.rate_hz))
    return _progress_bar("encoding", total, as_json)


@contextmanager
def _progress_bar(label: str, total: int, as_json: bool) -> Iterator[Callable[[int], None]]:
    """Yields a function that advances a progress bar; with JSON output there is no bar."""
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
        raise refuse("chunk", chunk, "0 (at once), 5 or 25")
    if not chunk:
        return codec.decode(codes, voice, seed)
    # The pool has the size of this reply, because there is no other.
    seconds = SECONDS_PER_CODE * (voice.codes + len(codes) + chunk)
    stream = codec.decoder_stream(voice, chunk, seed=seed, pool_seconds=seconds)
    pieces = []
    with _progress_bar("decoding", len(codes), as_json) as count:
        for first in range(0, len(codes), _BATCH_CODES):
            some = codes[first : first + _BATCH_CODES]
            pieces.append(stream.push(some))
            count(len(some))
        pieces.append(stream.finish())
    return np.concatenate(pieces)
