"""`mosslive bench talk`: live conversations end to end."""

from pathlib import Path
from typing import Annotated

import typer

from mosslive.cli.voice import VocoderOption


def talk(
    size: Annotated[str, typer.Option(help="full, small or nano: random weights.")] = "full",
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cuda",
    engine: Annotated[
        Path | None, typer.Option(help="An engine folder, instead of a random language model.")
    ] = None,
    conversations: Annotated[str, typer.Option(help="At once; several with commas.")] = "1,8",
    rounds: Annotated[int, typer.Option(min=1, help="Questions of each conversation.")] = 4,
    question_s: Annotated[float, typer.Option(min=0.1, help="Length of a question.")] = 5.0,
    reply_codes: Annotated[
        int, typer.Option(min=9, help="Length of a reply; 12.5 a second.")
    ] = 125,
    precision: Annotated[str, typer.Option(help="Language model: bf16, fp8 or fp32.")] = "bf16",
    codec_precision: Annotated[
        str, typer.Option(help="The flow's estimator: fp32, bf16 or fp16.")
    ] = "bf16",
    vocoder: VocoderOption = None,
    tail: Annotated[
        str, typer.Option(help="End of a reply: cached, or reference (as published; slow).")
    ] = "cached",
    html: Annotated[Path | None, typer.Option(help="Also write a page with plots.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Nothing but the JSON line.")] = False,
) -> None:
    """Questions in real time, spoken replies: time to first audio and where it goes, verified.

    How far it is appears on standard error; the last line of the output is all of it as JSON.
    """
    from mosslive.bench.lm_report import text_report
    from mosslive.bench.lm_subject import Subject, numbers
    from mosslive.bench.report_html import write_html
    from mosslive.bench.talk import TalkBenchSettings, measure_talk
    from mosslive.cli.console import err, print_json

    settings = TalkBenchSettings(
        subject=Subject(size, device, engine),  # type: ignore[arg-type]  # it checks the size
        conversations=numbers("conversations", conversations),
        rounds=rounds,
        question_s=question_s,
        reply_codes=reply_codes,
        precision=precision,
        codec_precision=codec_precision,
        vocoder=vocoder,
        tail=tail,  # type: ignore[arg-type]  # checked there
    )
    result = measure_talk(settings, seen=lambda line: err.print(line, style="dim"))
    if html:
        write_html(html, [result])
    if not json:
        print(text_report(result))
    print_json(result.document())
