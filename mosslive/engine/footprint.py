"""Memory that a language model will need, read from its folder without loading it.

Knows sizes only: neither devices nor how many rows are wanted.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import torch

from mosslive.cache import row_bytes
from mosslive.checkpoint.engine_folder import is_engine, open_engine
from mosslive.checkpoint.layout import CONFIG_FILE, expected_tensors, model_folder
from mosslive.config import ModelConfig, refuse

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Footprint:
    weight_bytes: int
    row_bytes: int  # keys, values and trunk output of one row


def footprint(path: str | Path, dtype: str = "bfloat16") -> Footprint:
    """`dtype`: of a folder in the published layout; an engine folder has its own."""
    if is_engine(path):
        engine = open_engine(path)
        config, own = engine.manifest.config, _DTYPES[engine.manifest.dtype]
        return Footprint(engine.weight_bytes, row_bytes(config, own))
    if dtype not in _DTYPES:
        raise refuse("dtype", dtype, ", ".join(_DTYPES))
    config = ModelConfig.from_file(model_folder(path) / CONFIG_FILE)
    values = sum(map(math.prod, expected_tensors(config).values()))
    return Footprint(values * _DTYPES[dtype].itemsize, row_bytes(config, _DTYPES[dtype]))
