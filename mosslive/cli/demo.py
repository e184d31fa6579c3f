"""`mosslive demo`: a spoken question to the bundled model, and its spoken answer."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from mosslive.cli.console import err, out
from mosslive.config import folders

QUESTION = "question.flac"
WORDS = "question.txt"  # what is said in it


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="The WAV file to write.")] = Path(
        "answer.wav"
    ),
    play: Annotated[
        bool, typer.Option(help="Play the answer, where there is a sound card.")
    ] = True,
) -> None:
    """Ask the bundled model a spoken question and write its spoken answer.

    Where the model is not in this copy of mosslive, random weights show what the machine does.
    """
    home = folders.shipped_folder()
    if not folders.has_bundled():
        from mosslive.cli.demo_random import show_the_machine

        err.print(f"{home} holds no weights; a random model instead.\n", markup=False)
        show_the_machine()
        return
    from mosslive.cli import demo_talk
    from mosslive.codec import read_sound, write_sound
    from mosslive.talk.cores import share_cores

    share_cores("cpu")
    question = read_sound(home / QUESTION)
    words = (home / WORDS).read_text(encoding="utf-8").strip()
    out.print(f"question: {words}", markup=False)
    answer, heard = asyncio.run(demo_talk.ask(folders.find_parts(home), question))
    write_sound(output, answer.sound, answer.rate_hz)
    out.print(f"answer:   {heard}", markup=False)
    ttfa_s, rtf = answer.timing.ttfa_s, answer.timing.rtf
    if ttfa_s is not None and rtf is not None:
        out.print(
            f"{answer.timing.audio_s:.2f} s of speech, written down by the model itself; first "
            f"sound {1000 * ttfa_s:.0f} ms after the question's end, real-time factor {rtf:.2f}"
        )
    played = play and demo_talk.play(answer.sound, answer.rate_hz)
    hint = "" if played else ": listen to it"
    out.print(f"wrote {output}{hint}", soft_wrap=True, markup=False)
