"""`mosslive verify`: checks an engine folder's files and its logits on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from mosslive.cli.console import advance, byte_progress, err, out, print_json
from mosslive.cli.models import DeviceOption, device_of, local

if TYPE_CHECKING:
    from mosslive.build import Verdict


def verify(
    folder: Annotated[
        Path, typer.Argument(metavar="ENGINE", help="Check this engine folder, or a repo id.")
    ],
    device: DeviceOption = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Check the hash of every file of an engine folder, then run its golden probes.

    Exits with status 1 if a file changed or the logits differ from those of the source.
    """
    from mosslive.build import check_probes, load_engine_weights, overall_precision
    from mosslive.build.probes import read_probes
    from mosslive.checkpoint.engine_folder import check_hashes, open_engine
    from mosslive.engine.read import read_device
    from mosslive.model import Decoder

    where = read_device(device_of(device))
    engine = open_engine(local(folder))
    total = sum(record.bytes for record in engine.manifest.files.values())
    with byte_progress("hashing", total) as progress:
        check_hashes(engine, lambda count: advance(progress, count))
    with byte_progress("loading", engine.weight_bytes) as progress:
        weights = load_engine_weights(engine, where, lambda count: advance(progress, count))
    decoder = Decoder(engine.manifest.config, weights)
    probes = read_probes(engine.probes_path)
    verdict = check_probes(decoder, probes, overall_precision(engine.manifest))
    if as_json:
        print_json({"folder": str(folder), "device": str(where), **verdict.to_dict()})
    else:
        out.print(verdict_table(verdict))
        passed = "passed" if verdict.passed else "FAILED: do not use this engine on this device"
        err.print(f"{folder}: {passed}", markup=False)
    if not verdict.passed:
        raise typer.Exit(1)


def verdict_table(verdict: "Verdict") -> Table:
    limits = verdict.limits
    allowed = f"error at most {limits.error:g}, cosine at least {limits.cosine:g}"
    title = f"probes compared with float32, {verdict.precision}: {allowed}"
    table = Table("head", title=title, title_justify="left")
    for name in ("rows", "largest error", "worst cosine", "same arg-max", "verdict"):
        table.add_column(name, justify="right")
    for name, head in verdict.heads.items():
        cells = f"{head.error:.2g}", f"{head.cosine:.6f}", f"{head.argmax_agreement:.0%}"
        style = None if head.passed else "red"
        passed = "passed" if head.passed else "failed"
        table.add_row(name, f"{head.rows}", *cells, passed, style=style)
    return table
