"""`Engine.load`: an engine folder gives the rows of its source, and a damaged one is refused."""

import asyncio
from pathlib import Path

import pytest
import torch

from mosslive import Engine, LanguageModel, MossliveError, Sampling
from mosslive.build import build_engine
from mosslive.checkpoint.faults import CheckpointError
from mosslive.rows import Row
from tests.engine.models import prompt_rows

GREEDY = Sampling(greedy=True, max_new=8)


@pytest.fixture(scope="module")
def engine_folder(nano_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built") / "engine"
    return build_engine(nano_folder, out, torch.device("cpu"), dtype="float32").folder


async def reply_of(engine: Engine, rows: list[Row]) -> list[Row]:
    async with engine:
        conversation = engine.open()
        conversation.append(rows)
        return [row async for row in conversation.reply(GREEDY)]


def test_an_engine_folder_gives_the_rows_of_its_source(
    engine_folder: Path, nano_folder: Path, nano_lm: LanguageModel
) -> None:
    """After build, verify and load, with fused and stored weights, the model gives the same
    rows."""
    rows = prompt_rows(nano_lm, "text to speech")
    expected = list(nano_lm.generate(rows, GREEDY))
    for path in (engine_folder, nano_folder):
        assert asyncio.run(reply_of(Engine.load(path, kv_rows=256), rows)) == expected


def test_a_flipped_bit_is_refused(engine_folder: Path) -> None:
    """Loading an engine folder that has changed since it was built raises an error."""
    weights = next(engine_folder.glob("*.safetensors"))
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    try:
        weights.write_bytes(bytes(content))
        with pytest.raises(CheckpointError):
            Engine.load(engine_folder)
    finally:
        content[-1] ^= 1
        weights.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"dtype": "bfloat16"}, "dtype"),
        ({"kv_rows": -1}, "kv_rows"),
        ({"kv_rows": 0}, "kv_rows"),
        ({"host_embeddings": True}, "host_embeddings"),
        ({"most_requests": 0}, "most_requests"),
        ({"page_size": 2.5}, "page_size"),
        ({"device": "tpu"}, "device"),
    ],
)
def test_bad_options_are_named(engine_folder: Path, options: dict[str, object], named: str) -> None:
    """The error names the bad option, its value and the allowed values."""
    with pytest.raises(MossliveError, match=named):
        Engine.load(engine_folder, **options)  # type: ignore[arg-type]
