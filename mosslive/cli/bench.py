"""`mosslive bench`: benchmarks that verify every output before they print a time."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mosslive.cli.bench_bundled import bundled
from mosslive.cli.bench_capacity import capacity
from mosslive.cli.bench_memory import memory
from mosslive.cli.bench_precision import codec_precision
from mosslive.cli.bench_talk import talk
from mosslive.cli.bench_turns import turns
from mosslive.cli.command_group import CommandGroup
from mosslive.cli.console import err, out, print_json
from mosslive.cli.models import DeviceOption, device_of, local

if TYPE_CHECKING:
    from mosslive.bench.report import BenchResult
    from mosslive.bench.subject import Subject

bench = CommandGroup("Run benchmarks. Every output is verified before it is timed.")

Size = Annotated[str, typer.Option(help="Use random weights of size full, small or nano.")]
Device = Annotated[str, typer.Option(help="Run on cuda or cpu.")]
Engine = Annotated[
    Path | None, typer.Option(help="Measure an engine folder instead of random weights.")
]
Precision = Annotated[
    str, typer.Option(help="Use bf16, fp8 (trunk) or fp32; separate several with commas.")
]
Html = Annotated[Path | None, typer.Option(help="Also write an HTML page with plots.")]
Json = Annotated[bool, typer.Option("--json", help="Print only the JSON line.")]
Reference = Annotated[bool, typer.Option(help="Also time transformers' layers in the same run.")]
Repeats = Annotated[int, typer.Option(min=3, help="Limit the timed calls per row.")]


@bench.callback()
def _group() -> None:
    pass


@bench.command()
def step(
    model: Annotated[
        Path | None,
        typer.Option(help="Measure a model folder. Default: random weights of size small."),
    ] = None,
    context: Annotated[
        int, typer.Option(min=8, help="Set the rows before the first timed step.")
    ] = 256,
    steps: Annotated[int, typer.Option(min=10, help="Set the number of timed steps.")] = 100,
    dtype: Annotated[str, typer.Option(help="Compute in float32 or bfloat16.")] = "float32",
    json: Json = False,
) -> None:
    """Time the decode step on the CPU against its bare matrix products.

    The result is a ratio: do not compare times of different machines or runs. The last line of the
    output is JSON.
    """
    from mosslive.bench.lm.step import measure_step, step_table

    result = measure_step(local(model), context, steps, dtype)
    if not json:
        out.print(step_table(result))
    print_json(vars(result))


@bench.command()
def codec(
    size: Annotated[
        str, typer.Option(help="Use random weights of size full, small or nano.")
    ] = "small",
    device: DeviceOption = "auto",
    repeats: Annotated[int, typer.Option(min=3, help="Limit the timed calls per row.")] = 30,
    parts: Annotated[
        str, typer.Option(help="Measure these parts, separated by commas.")
    ] = "encoder,vocoder,flow",
    json: Json = False,
) -> None:
    """Time encoder, flow with HiFT, and BigVGAN at random weights, each verified against the CPU.

    Prints each row on standard error when it is ready. The last line of the output is JSON with
    all rows.
    """
    from mosslive.bench.codec.measure import cells, codec_table, measure_codec

    result = measure_codec(
        size,
        device_of(device),
        repeats,
        parts=[part.strip() for part in parts.split(",")],
        seen=lambda row: err.print("  ".join(filter(None, cells(row))), style="dim"),
    )
    if not json:
        out.print(codec_table(result))
    print_json(result.document())


@bench.command()
def decode(
    size: Size = "full",
    device: Device = "cuda",
    engine: Engine = None,
    streams: Annotated[str, typer.Option(help="Set the streams per step.")] = "1,64,256",
    context: Annotated[str, typer.Option(help="Set the rows of context per stream.")] = "1024",
    precision: Precision = "bf16,fp8",
    repeats: Repeats = 50,
    reference: Reference = True,
    compiled: Annotated[bool, typer.Option(help="Also time the compiled reference.")] = True,
    html: Html = None,
    json: Json = False,
) -> None:
    """Time the decode step of the language model, transformers and the bandwidth floor.

    The last line of the output is JSON.
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
    rows: Annotated[str, typer.Option(help="Set the rows of the prompt.")] = "512",
    precision: Precision = "bf16,fp8",
    repeats: Repeats = 30,
    reference: Reference = True,
    html: Html = None,
    json: Json = False,
) -> None:
    """Time the prefill of a prompt before a spoken reply, and transformers.

    The last line of the output is JSON.
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
    precision: Annotated[str, typer.Option(help="Write a random folder in bf16 or fp8.")] = "bf16",
    repeats: Annotated[int, typer.Option(min=1, help="Set the starts with compiled kernels.")] = 2,
    cold: Annotated[bool, typer.Option(help="First time a start without compiled kernels.")] = True,
    folder: Annotated[
        Path | None, typer.Option(help="Write the random folder here. Default: /dev/shm.")
    ] = None,
    html: Html = None,
    json: Json = False,
) -> None:
    """Time the start of an engine in fresh processes, from its folder to the first row.

    The last line of the output is JSON.
    """
    subject = _subject(size, device, engine)
    from mosslive.bench.lm.load import LoadSettings, measure_load

    _show(measure_load(LoadSettings(subject, precision, repeats, cold, folder)), html, json)


@bench.command("engine")
def engine_command(
    size: Size = "full",
    device: Device = "cuda",
    engine: Engine = None,
    streams: Annotated[
        str, typer.Option(help="Set the conversations, all speaking.")
    ] = "1,8,64,256",
    context: Annotated[
        int, typer.Option(min=8, help="Set the rows of context per conversation.")
    ] = 1024,
    rows: Annotated[int, typer.Option(min=8, help="Set the rows of each reply.")] = 64,
    precision: Annotated[str, typer.Option(help="Use bf16, fp8 or fp32.")] = "bf16",
    memory_cap_gib: Annotated[
        float | None, typer.Option(min=0.1, help="Limit the GPU memory of PyTorch.")
    ] = None,
    html: Html = None,
    json: Json = False,
) -> None:
    """Time the whole engine with its scheduler: rows per second, step time, missed deadlines.

    The last line of the output is JSON.
    """
    subject = _subject(size, device, engine)
    from mosslive.bench.lm.engine import EngineBenchSettings, measure_engine
    from mosslive.bench.subject import numbers

    settings = EngineBenchSettings(
        subject, numbers("streams", streams), context, rows, precision, memory_cap_gib
    )
    _show(measure_engine(settings), html, json)


bench.command()(talk)
bench.command()(turns)
bench.command()(capacity)
bench.command()(memory)
bench.command()(bundled)
bench.command()(codec_precision)


def _subject(size: str, device: str, engine: Path | None) -> "Subject":
    from mosslive.bench.subject import Subject

    return Subject(size, device, local(engine))  # type: ignore[arg-type]  # Subject checks the size


def _show(result: "BenchResult", html: Path | None, json_only: bool) -> None:
    from mosslive.bench.report import text_report
    from mosslive.bench.report_html import write_html

    if not json_only:
        print(text_report(result))
    print_json(result.document())
    if html:  # last, so that an unwritable path does not lose the measurement
        write_html(html, [result])
    if result.refused:
        raise typer.Exit(1)
