"""`mosslive pull`: downloads a model by name, checks it, and says what it needs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.filesize import decimal

from mosslive.cli.console import err, out, print_json
from mosslive.cli.inspect import folder_report
from mosslive.cli.models import local
from mosslive.config import SECONDS_PER_CODE
from mosslive.config.folders import CODEC_FOLDER
from mosslive.config.published import COMPANIONS
from mosslive.errors import MossliveError

if TYPE_CHECKING:
    from mosslive.checkpoint.hub import RepoName
    from mosslive.server.hardware import CodecSizes, LmPrecision

_ON_GPU: tuple["LmPrecision", ...] = ("bf16", "fp8")


def pull(
    name: Annotated[
        str,
        typer.Argument(metavar="ID", help="Download this repo: OWNER/NAME or OWNER/NAME@REVISION."),
    ],
    codec: Annotated[
        bool, typer.Option(help="Also download the codec that the model is published with.")
    ] = True,
    values: Annotated[
        bool, typer.Option(help="Read every value and find NaN and infinities.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Download a model from the Hugging Face hub, check its files, and print what it needs.

    Only files that mosslive reads are downloaded, into the cache of the hub; HF_TOKEN, HF_ENDPOINT,
    HF_HOME and HF_HUB_OFFLINE apply. Run it again to go on after an interruption. Exits with status
    1 if the model is unusable.
    """
    from mosslive.checkpoint.hub import repo_name

    repo = repo_name(name)
    if repo is None:
        kind = "a folder of this machine" if Path(name).exists() else "not a repo id"
        raise MossliveError(f"{name} is {kind}; pull takes OWNER/NAME or OWNER/NAME@REVISION")
    try:
        folders = _download(repo, codec)
    except KeyboardInterrupt:
        typer.echo(f"mosslive: stopped; run `mosslive pull {name}` again to go on", err=True)
        raise typer.Exit(130) from None
    reports = {given: folder_report(folder, values) for given, folder in folders.items()}
    usable = all(report["usable"] for report in reports.values())
    document = {
        "folders": {given: str(folder) for given, folder in folders.items()},
        "usable": usable,
        "faults": [fault for report in reports.values() for fault in report["faults"]],
        "bytes": sum(_disk_bytes(folder) for folder in folders.values()),
        "needs": _needs(list(folders.values()), list(reports.values())) if usable else None,
    }
    if as_json:
        print_json(document)
    else:
        _show(str(repo), document, reports)
    if not usable:
        raise typer.Exit(1)


def _download(repo: "RepoName", codec: bool) -> dict[str, Path]:
    """Folders by repo: the one that was asked for and, by default, its codec."""
    folders = {str(repo): local(Path(str(repo)))}
    pair = COMPANIONS.get(repo.id)
    if codec and pair and not (folders[str(repo)] / CODEC_FOLDER).is_dir():
        folders[pair.codec] = local(Path(pair.codec))
    return folders


def _disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _needs(folders: list[Path], reports: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Bytes by use; None without a language model in the published layout. The GPU memory is for
    one conversation, and only known with a codec."""
    from mosslive.build.engine_cache import WORTH_BYTES
    from mosslive.checkpoint.engine_folder import is_engine
    from mosslive.checkpoint.layout import CONFIG_FILE, model_folder
    from mosslive.codec.inventory import is_codec
    from mosslive.config import ModelConfig
    from mosslive.server.hardware import Talk, gpu_bytes, lm_bytes, sizes_of

    codecs = [f for folder in folders for f in (folder, folder / CODEC_FOLDER) if is_codec(f)]
    models = [f for f in folders if not is_codec(f) and not is_engine(f)]
    if not models:
        return None
    config = ModelConfig.from_file(model_folder(models[0]) / CONFIG_FILE)
    weights = lm_bytes(config)
    needs: dict[str, Any] = {"memory_without_gpu": weights["float32"]}
    if weights["bf16"] >= WORTH_BYTES:  # a smaller one is used as it is
        needs["engine_folder"] = {name: weights[name] for name in _ON_GPU}
    if codecs:
        sizes = sizes_of(config, _codec_sizes(codecs[0], reports))
        needs["gpu"] = {name: gpu_bytes(sizes, name, 1, Talk()) for name in _ON_GPU}
        needs["gpu_rows"] = Talk().rows
        needs["memory_without_gpu"] += sizes.codec.weights
    return needs


def _codec_sizes(folder: Path, reports: list[dict[str, Any]]) -> "CodecSizes":
    from mosslive.codec import load_codec
    from mosslive.server.hardware import CodecSizes

    blocks = {row["block"]: row["bytes"] for report in reports for row in report["blocks"]}
    flow = max(size for block, size in blocks.items() if block.startswith("flow"))  # one is loaded
    return CodecSizes(
        weights=blocks["encoder"] + flow + blocks["HiFT vocoder"],
        reply_second=load_codec(folder, dtype="float16").second_bytes(),
        hearing=lambda seconds: load_codec(folder, hearing_seconds=seconds).hearing_bytes,
    )


def _show(name: str, document: dict[str, Any], reports: dict[str, dict[str, Any]]) -> None:
    for given, report in reports.items():
        verdict = "usable" if report["usable"] else "NOT USABLE"
        line = f"{given}: {verdict}, {report['tensors']:,} tensors, {report['folder']}"
        out.print(line, soft_wrap=True, markup=False)
        for fault in report["faults"]:
            err.print(fault["message"], style="red", soft_wrap=True, markup=False)
    out.print(f"disk: {decimal(document['bytes'])} downloaded")
    if needs := document["needs"]:
        if engine := needs.get("engine_folder"):
            out.print(
                f"      {decimal(engine['bf16'])} more for the engine folder that a GPU uses, or "
                f"{decimal(engine['fp8'])} with --fp8 trunk; it is built at the first start",
                soft_wrap=True,
            )
        if gpu := needs.get("gpu"):
            seconds = needs["gpu_rows"] * SECONDS_PER_CODE
            out.print(
                f"GPU memory: {_gib(gpu['bf16'])} in bf16, {_gib(gpu['fp8'])} with --fp8 trunk, "
                f"for one conversation of {needs['gpu_rows']} rows ({seconds:.0f} s); "
                f"computed, not measured",
                soft_wrap=True,
            )
        out.print(f"memory without a GPU: {decimal(needs['memory_without_gpu'])}, in float32")
    if needs:
        out.print(f"next: mosslive serve {name}", markup=False)


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
