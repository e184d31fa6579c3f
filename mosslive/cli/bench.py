"""`mosslive bench`: measurements, each verified before it is printed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mosslive.cli.bench_bundled import bundled
from mosslive.cli.bench_talk import talk
from mosslive.cli.console import err, out, print_json

if TYPE_CHECKING:
    from mosslive.bench.report import BenchResult
    from mosslive.bench.subject import Subject

bench = typer.Typer(help="Measure; every output is verified first.", no_args_is_help=True)

Size = Annotated[str, typer.Option(help="full, small or nano: random weights of that size.")]
Device = Annotated[str, typer.Option(help="cuda or cpu.")]
Engine = Annotated[Path | None, typer.Option(help="An engine folder, instead of random weights.")]
Precision = Annotated[str, typer.Option(help="bf16, fp8 (trunk) or fp32; several with commas.")]
Html = Annotated[Path | None, typer.Option(help="Also write a page with plots.")]
Json = Annotated[bool, typer.Option("--json", help="Nothing but the JSON line.")]
Reference = Annotated[bool, typer.Option(help="Time transformers' layers in the same run.")]
Repeats = Annotated[int, typer.Option(min=3, help="Timed calls per row, at most.")]


@bench.callback()
def _group() -> None:
    pass


@bench.command()
def step(
    model: Annotated[
        Path | None, typer.Option(help="A model folder; default: a random one of size small.")
    ] = None,
    context: Annotated[int, typer.Option(min=8, help="Rows before the first timed step.")] = 256,
    steps: Annotated[int, typer.Option(min=10, help="Timed steps.")] = 100,
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
) -> None:
    """The decode step on the CPU against the bare matrix products it must do.

    The last line is the same as JSON. A ratio, not a speed: times of different machines or runs
    must not be compared.
    """
    from mosslive.bench.lm.step import measure_step, step_table

    result = measure_step(model, context, steps, dtype)
    out.print(step_table(result))
    print_json(vars(result))


@bench.command()
def codec(
    size: Annotated[str, typer.Option(help="full, small or nano.")] = "small",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    repeats: Annotated[int, typer.Option(min=3, help="Timed calls per row, at most.")] = 30,
    parts: Annotated[
        str, typer.Option(help="Which of encoder, vocoder and flow.")
    ] = "encoder,vocoder,flow",
) -> None:
    """Encoder, flow with HiFT, and BigVGAN at random weights, each verified against the CPU.

    Rows appear on standard error as they come; the last line of the output is all of them as JSON.
    """
    from mosslive.bench.codec.measure import cells, codec_table, measure_codec

    result = measure_codec(
        size,
        device,
        repeats,
        parts=[part.strip() for part in parts.split(",")],
        seen=lambda row: err.print("  ".join(filter(None, cells(row))), style="dim"),
    )
    out.print(codec_table(result))
    print_json(result.document())


@bench.command()
def decode(
    size: Size = "full",
    device: Device = "cuda",
    engine: Engine = None,
    streams: Annotated[str, typer.Option(help="Conversations in a step.")] = "1,64,256",
    context: Annotated[str, typer.Option(help="Rows each has.")] = "1024",
    precision: Precision = "bf16,fp8",
    repeats: Repeats = 50,
    reference: Reference = True,
    compiled: Annotated[bool, typer.Option(help="Compile the reference as well.")] = True,
    html: Html = None,
    json: Json = False,
) -> None:
    """The decode step of the language model beside transformers, and against what memory allows.

    The last line is the same as JSON.
    """
    subject = _subject(size, device, engine)
    from mosslive.bench.lm.decode import DecodeSettings, measure_decode
    from mosslive.bench.subject import numbers

    settings = DecodeSettings(
        subject=subject,
        streams=numbers("streams", streams),
        contexts=numbers("context", context, 8),
        precisions=tuple(precision.split(",")),
        repeats=repeats,
        reference=reference,
        compiled=compiled,
    )
    _show(measure_decode(settings), html, json)


@bench.command()
def prefill(
    size: Size = "full",
    device: Device = "cuda",
    engine: Engine = None,
    rows: Annotated[str, typer.Option(help="Rows of the prompt.")] = "512",
    precision: Precision = "bf16,fp8",
    repeats: Repeats = 30,
    reference: Reference = True,
    html: Html = None,
    json: Json = False,
) -> None:
    """The pass over a prompt before a spoken reply, beside transformers.

    The last line is the same as JSON.
    """
    subject = _subject(size, device, engine)
    from mosslive.bench.lm.prefill import PrefillSettings, measure_prefill
    from mosslive.bench.subject import numbers

    chosen = tuple(precision.split(","))
    settings = PrefillSettings(subject, numbers("rows", rows, 8), chosen, repeats, reference)
    _show(measure_prefill(settings), html, json)


@bench.command()
def load(
    size: Size = "full",
    device: Device = "cuda",
    engine: Engine = None,
    precision: Annotated[str, typer.Option(help="bf16 or fp8, of a random folder.")] = "bf16",
    repeats: Annotated[int, typer.Option(min=1, help="Starts with compiled kernels.")] = 2,
    cold: Annotated[bool, typer.Option(help="One before, with none compiled.")] = True,
    folder: Annotated[
        Path | None, typer.Option(help="Where a random folder is put; default: /dev/shm.")
    ] = None,
    html: Html = None,
    json: Json = False,
) -> None:
    """From an engine folder to the first row, in fresh processes, graphs recorded.

    The last line is the same as JSON.
    """
    subject = _subject(size, device, engine)
    from mosslive.bench.lm.load import LoadSettings, measure_load

    _show(measure_load(LoadSettings(subject, precision, repeats, cold, folder)), html, json)


@bench.command("engine")
def engine_command(
    size: Size = "full",
    device: Device = "cuda",
    engine: Engine = None,
    streams: Annotated[str, typer.Option(help="Conversations, all speaking.")] = "1,8,64,256",
    context: Annotated[int, typer.Option(min=8, help="Rows each has heard.")] = 1024,
    rows: Annotated[int, typer.Option(min=8, help="Rows of each reply.")] = 64,
    precision: Annotated[str, typer.Option(help="bf16, fp8 or fp32.")] = "bf16",
    memory_cap_gib: Annotated[
        float | None, typer.Option(min=0.1, help="GPU memory PyTorch may take.")
    ] = None,
    html: Html = None,
    json: Json = False,
) -> None:
    """The whole engine with its scheduler: rows per second, step time, missed deadlines.

    The last line is the same as JSON.
    """
    subject = _subject(size, device, engine)
    from mosslive.bench.lm.engine import EngineBenchSettings, measure_engine
    from mosslive.bench.subject import numbers

    settings = EngineBenchSettings(
        subject, numbers("streams", streams), context, rows, precision, memory_cap_gib
    )
    _show(measure_engine(settings), html, json)


bench.command()(talk)
bench.command()(bundled)


def _subject(size: str, device: str, engine: Path | None) -> "Subject":
    from mosslive.bench.subject import Subject

    return Subject(size, device, engine)  # type: ignore[arg-type]  # it checks the size


def _show(result: "BenchResult", html: Path | None, json_only: bool) -> None:
    from mosslive.bench.report import text_report
    from mosslive.bench.report_html import write_html

    if not json_only:
        print(text_report(result))
    print_json(result.document())
    if html:  # after the rest: a path that cannot be written must not cost the measurement
        write_html(html, [result])
    if result.refused:
        raise typer.Exit(1)
