"""`mosslive bench capacity`: searches how many live conversations one device holds."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from mosslive.cli.models import DeviceOption, device_of, local
from mosslive.cli.voice import CodecPrecisionOption


def capacity(
    url: Annotated[
        str | None, typer.Option(help="Call a running server: ws://HOST:PORT/v1/realtime.")
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="Serve this model or engine folder; default: bundled, without --url."),
    ] = None,
    size: Annotated[
        str | None, typer.Option(help="Use random weights of size full, small or nano.")
    ] = None,
    engine: Annotated[
        Path | None, typer.Option(help="Use an engine folder and a random codec of --size.")
    ] = None,
    device: DeviceOption = "auto",
    conversations: Annotated[
        str | None,
        typer.Option(help="Measure these loads, separated by commas; default: search."),
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="Search up to this many conversations.")] = 256,
    seconds: Annotated[
        float, typer.Option(min=1, help="Measure each load for this many seconds.")
    ] = 30.0,
    sockets: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Let this share of the callers use WebSockets; 1: a server process."
        ),
    ] = 0.5,
    turn_detection: Annotated[
        str, typer.Option(help="End turns by server_vad, or none: the callers commit them.")
    ] = "none",
    silence_ms: Annotated[
        int, typer.Option(min=0, help="End a detected turn after this much silence.")
    ] = 500,
    ttfa_ms: Annotated[
        float, typer.Option(min=1, help="Promise this time to first audio, 95th percentile.")
    ] = 500.0,
    question_s: Annotated[
        str, typer.Option(help="Set the length of questions in seconds: LEAST,MOST.")
    ] = "2,6",
    reply_s: Annotated[
        str, typer.Option(help="Limit replies to a length between LEAST,MOST seconds.")
    ] = "4,12",
    turns: Annotated[float, typer.Option(help="Set the mean number of questions in a call.")] = 3.0,
    interrupted: Annotated[
        float, typer.Option(min=0, max=1, help="Interrupt this share of the replies.")
    ] = 0.1,
    left: Annotated[
        float, typer.Option(min=0, max=1, help="Leave this share of the calls during a reply.")
    ] = 0.05,
    seed: Annotated[int, typer.Option(min=0, help="Seed the load.")] = 0,
    recording: Annotated[
        Path | None,
        typer.Option(help="Make the questions from this recording of speech without pauses."),
    ] = None,
    api_key: Annotated[str | None, typer.Option(help="Call the server with this key.")] = None,
    precision: Annotated[
        str, typer.Option(help="Run a random language model in bf16, fp8 or fp32.")
    ] = "bf16",
    codec_precision: CodecPrecisionOption = None,
    server_options: Annotated[
        str, typer.Option(help="Give these options to the server process.")
    ] = "",
    html: Annotated[Path | None, typer.Option(help="Also write an HTML page with plots.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print only the JSON line.")] = False,
) -> None:
    """Find how many live conversations one device holds, and print the curve up to there.

    Callers arrive at random, ask, listen, interrupt and leave. A load keeps the promise if 95 % of
    its replies begin in time and no caller hears a gap. Prints progress on standard error. The last
    line of the output is JSON.
    """
    from mosslive.bench.capacity.level import Promise
    from mosslive.bench.capacity.line import TurnEnds
    from mosslive.bench.capacity.load import Load
    from mosslive.bench.capacity.measure import measure_capacity
    from mosslive.bench.capacity.settings import CapacitySettings
    from mosslive.bench.report import text_report
    from mosslive.bench.report_html import write_html
    from mosslive.bench.subject import Subject, numbers
    from mosslive.cli.console import err, print_json
    from mosslive.config import refuse
    from mosslive.config.folders import BUNDLED

    if turn_detection not in ("server_vad", "none"):
        raise refuse("turn-detection", turn_detection, "server_vad or none")
    random = size is not None or engine is not None
    subject = None
    device = device_of(device, None if random else model or Path(BUNDLED))
    if random:
        subject = Subject(size or "full", device, local(engine))  # type: ignore[arg-type]  # it checks
    if not (url or model or random):
        model = Path(BUNDLED)
    settings = CapacitySettings(
        url=url,
        model=local(model),
        subject=subject,
        device=device,
        levels=numbers("conversations", conversations) if conversations else (),
        most=most,
        seconds=seconds,
        sockets=sockets,
        ends=TurnEnds(turn_detection == "server_vad", silence_ms),
        promise=Promise(ttfa_ms),
        load=Load(
            question_s=_span("question-s", question_s),
            reply_s=_span("reply-s", reply_s),
            turns=turns,
            interrupted=interrupted,
            left=left,
            seed=seed,
        ),
        recording=recording,
        key=api_key,
        precision=precision,
        codec_precision=codec_precision,
        server_options=tuple(shlex.split(server_options)),
    )
    measured = measure_capacity(settings, lambda line: err.print(line, style="dim"))
    result = measured.as_bench_result()
    if not json:
        print(text_report(result))
    print_json(measured.document())
    if html:  # last, so that an unwritable path does not lose the measurement
        write_html(html, [result])


def _span(name: str, text: str) -> tuple[float, float]:
    """ "2,6" → (2, 6); "4" → (4, 4)"""
    from mosslive.config import refuse

    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if len(found) not in (1, 2):
        raise refuse(name, text, "one number or LEAST,MOST")
    return found[0], found[-1]
