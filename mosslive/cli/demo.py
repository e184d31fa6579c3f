"""`mosslive demo`: asks the bundled model a spoken question."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mosslive.cli.console import err, out, print_json
from mosslive.cli.voice import JsonOption
from mosslive.config import folders

if TYPE_CHECKING:
    from mosslive.talk.timing import TurnTiming

QUESTION = "question.flac"
WORDS = "question.txt"  # its transcript


def demo(
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", help="Write the answer here: .wav, .flac, .ogg, .opus or .mp3."
        ),
    ] = Path("answer.wav"),
    play: Annotated[bool, typer.Option(help="Play the answer if there is a sound card.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Ask the bundled model a spoken question and write its spoken answer.

    Without the bundled model it shows the same steps with a random model.
    """
    home = folders.shipped_folder()
    if not folders.has_bundled():
        from mosslive.cli.demo_random import run_random_demo

        err.print(f"{home} contains no weights; using a random model.\n", markup=False)
        run_random_demo(as_json)
        return
    from mosslive.cli import demo_talk, sound_card
    from mosslive.codec import read_sound, sound_format, write_sound
    from mosslive.talk.cpu_threads import share_cpu_threads

    sound_format(output)  # raises before the slow part
    share_cpu_threads("cpu")
    question = read_sound(home / QUESTION)
    words = (home / WORDS).read_text(encoding="utf-8").strip()
    if not as_json:
        out.print(f"question: {words}", markup=False)
    answer, heard = asyncio.run(demo_talk.ask(folders.find_parts(home), question))
    write_sound(output, answer.sound, answer.rate_hz)
    if as_json:
        document = {"question": words, "answer": heard, "output": str(output)}
        print_json(document | {"timing": answer.timing.document()})
    else:
        _show(answer.timing, heard)
    played = play and asyncio.run(sound_card.play(answer.sound, answer.rate_hz))
    if not as_json:
        hint = "" if played else "; play it to hear the answer"
        out.print(f"wrote {output}{hint}", soft_wrap=True, markup=False)


def _show(timing: "TurnTiming", heard: str) -> None:
    out.print(f"answer:   {heard}", markup=False)
    if timing.ttfa_s is not None and timing.rtf is not None:
        out.print(
            f"{timing.audio_s:.2f} s of speech, transcribed by the model itself; first "
            f"audio {1000 * timing.ttfa_s:.0f} ms after the question ended, "
            f"real-time factor {timing.rtf:.2f}"
        )
