"""`mosslive bench`: measurements, each verified before it is printed."""

from pathlib import Path
from typing import Annotated

import typer

from mosslive.cli.console import out, print_json

bench = typer.Typer(help="Measure; every output is verified first.", no_args_is_help=True)


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
    from mosslive.bench.step import measure_step, step_table

    result = measure_step(model, context, steps, dtype)
    out.print(step_table(result))
    print_json(vars(result))


@bench.command()
def codec(
    size: Annotated[str, typer.Option(help="full, small or nano.")] = "small",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    repeats: Annotated[int, typer.Option(min=3, help="Timed calls per row, at most.")] = 30,
) -> None:
    """Encoder, flow with HiFT, and BigVGAN at random weights, each verified against the CPU.

    The last line is the same as JSON.
    """
    from mosslive.bench.codec import codec_table, measure_codec

    result = measure_codec(size, device, repeats)
    out.print(codec_table(result))
    print_json(result.document())
