"""`mosslive bench talk`: measures live conversations end to end."""

from pathlib import Path
from typing import Annotated

import typer

from mosslive.cli.models import local
from mosslive.cli.voice import CodecPrecisionOption, VocoderOption


def talk(
    size: Annotated[
        str, typer.Option(help="Use random weights of size full, small or nano.")
    ] = "full",
    device: Annotated[str, typer.Option(help="Run on cuda or cpu.")] = "cuda",
    engine: Annotated[
        Path | None, typer.Option(help="Use an engine folder instead of a random language model.")
    ] = None,
    conversations: Annotated[
        str, typer.Option(help="Set the simultaneous conversations; separate several with commas.")
    ] = "1,8",
    rounds: Annotated[int, typer.Option(min=1, help="Set the questions of each conversation.")] = 4,
    question_s: Annotated[
        float, typer.Option(min=0.1, help="Set the length of a question in seconds.")
    ] = 5.0,
    reply_codes: Annotated[
        int, typer.Option(min=9, help="Set the length of a reply in codes; 12.5 are a second.")
    ] = 125,
    precision: Annotated[
        str, typer.Option(help="Run the language model in bf16, fp8 or fp32.")
    ] = "bf16",
    codec_precision: CodecPrecisionOption = None,
    vocoder: VocoderOption = None,
    tail: Annotated[
        str,
        typer.Option(
            help="Render the end of a reply as cached, or as reference (published; slow)."
        ),
    ] = "cached",
    stagger: Annotated[
        float, typer.Option(min=0, help="Spread the starts of the conversations over seconds.")
    ] = 2.0,
    pool_s: Annotated[
        float | None,
        typer.Option(min=1, help="Let replies store this much speech; default: as they need."),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Also write an HTML page with plots.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print only the JSON line.")] = False,
) -> None:
    """Time live conversations: time to first audio by stage, and real-time factor, verified.

    Prints progress on standard error. The last line of the output is JSON.
    """
    from mosslive.bench.report import text_report
    from mosslive.bench.report_html import write_html
    from mosslive.bench.subject import Subject, numbers
    from mosslive.bench.talk.measure import TalkBenchSettings, measure_talk
    from mosslive.cli.console import err, print_json

    settings = TalkBenchSettings(
        subject=Subject(size, device, local(engine)),  # type: ignore[arg-type]  # Subject checks the size
        conversations=numbers("conversations", conversations),
        rounds=rounds,
        question_s=question_s,
        reply_codes=reply_codes,
        precision=precision,
        codec_precision=codec_precision,
        vocoder=local(vocoder),
        tail=tail,  # type: ignore[arg-type]  # TalkBenchSettings checks it
        stagger_s=stagger,
        pool_s=pool_s,
    )
    result = measure_talk(settings, seen=lambda line: err.print(line, style="dim"))
    if html:
        write_html(html, [result])
    if not json:
        print(text_report(result))
    print_json(result.document())
