"""The report of `mosslive inspect` for an engine folder, in the format of a model folder's."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mosslive.cli.console import advance, byte_progress

if TYPE_CHECKING:
    from mosslive.checkpoint.engine_folder import EngineFolder


def engine_report(folder: Path, values: bool) -> dict[str, Any]:
    """`values`: compare the SHA-256 of every file. `verify` also checks the computation."""
    from mosslive.checkpoint import CheckpointError
    from mosslive.checkpoint.engine_folder import check_hashes, open_engine
    from mosslive.checkpoint.generation import folder_sampling
    from mosslive.checkpoint.layout import GENERATION_FILE
    from mosslive.config import ConfigError

    report: dict[str, Any] = {"folder": str(folder), "blocks": [], "values_read": values}
    report |= {"tensors": 0, "parameters": 0, "bytes": 0, "faults": [], "usable": True}
    try:
        engine = open_engine(folder)
        report |= _contents(engine)
        if values:
            total = sum(record.bytes for record in engine.manifest.files.values())
            with byte_progress("hashing", total) as progress:
                check_hashes(engine, lambda count: advance(progress, count))
    except CheckpointError as fault:
        found = {"kind": type(fault).__name__, "names": fault.names, "message": fault.line()}
        report |= {"faults": [found], "usable": False}
        return report
    try:
        report["sampling"] = vars(folder_sampling(folder))
    except ConfigError as fault:
        found = {"kind": "ConfigError", "names": [GENERATION_FILE], "message": str(fault)}
        report |= {"faults": [found], "usable": False}
    return report


def _contents(engine: "EngineFolder") -> dict[str, Any]:
    blocks: dict[str, list[str]] = {}
    for name in engine.tensors:
        first, second, *_ = name.split(".")
        is_layer = second.isdigit()
        label = f"{first} layers" if is_layer else f"{first} {second}"
        blocks.setdefault(label, []).append(name)
    rows = []
    for block, names in blocks.items():
        held = [engine.tensors[name] for name in names]
        rows.append(
            {
                "block": block,
                "tensors": len(held),
                "parameters": sum(math.prod(placed.shape) for placed in held),
                "bytes": sum(placed.data_bytes for placed in held),
                "dtype": ", ".join(sorted({placed.dtype for placed in held})),
                "verdict": "ok",
            }
        )
    manifest = engine.manifest
    return {
        "blocks": rows,
        **{name: sum(row[name] for row in rows) for name in ("tensors", "parameters", "bytes")},
        "mosslive": manifest.mosslive,
        "settings": manifest.settings,
    }
