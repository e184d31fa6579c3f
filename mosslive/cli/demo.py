"""`mosslive demo`: asks the bundled model a spoken question."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from mosslive.cli.console import err, out
from mosslive.config import folders

QUESTION = "question.flac"
WORDS = "question.txt"  # its transcript


def demo(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Write the answer to this WAV file.")
    ] = Path("answer.wav"),
    play: Annotated[bool, typer.Option(help="Play the answer if there is a sound card.")] = True,
) -> None:
    """Ask the bundled model a spoken question and write its spoken answer.

    Without the bundled model it shows the same steps with a random model.
    """
    home = folders.shipped_folder()
    if not folders.has_bundled():
        from mosslive.cli.demo_random import run_random_demo

        err.print(f"{home} contains no weights; using a random model.\n", markup=False)
        run_random_demo()
        return
    from mosslive.cli import demo_talk
    from mosslive.codec import read_sound, write_sound
    from mosslive.talk.cpu_threads import share_cpu_threads

    share_cpu_threads("cpu")
    question = read_sound(home / QUESTION)
    words = (home / WORDS).read_text(encoding="utf-8").strip()
    out.print(f"question: {words}", markup=False)
    answer, heard = asyncio.run(demo_talk.ask(folders.find_parts(home), question))
    write_sound(output, answer.sound, answer.rate_hz)
    out.print(f"answer:   {heard}", markup=False)
    ttfa_s, rtf = answer.timing.ttfa_s, answer.timing.rtf
    if ttfa_s is not None and rtf is not None:
        out.print(
            f"{answer.timing.audio_s:.2f} s of speech, transcribed by the model itself; first "
            f"audio {1000 * ttfa_s:.0f} ms after the question ended, real-time factor {rtf:.2f}"
        )
    played = play and demo_talk.play(answer.sound, answer.rate_hz)
    hint = "" if played else "; play it to hear the answer"
    out.print(f"wrote {output}{hint}", soft_wrap=True, markup=False)
