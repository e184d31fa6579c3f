"""The published streaming algorithm: pieces of the reference's own stream, sample by sample."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from mosslive.codec.decoder_stream import DecoderStream
from mosslive.codec.flow import Flow, FlowVoice
from mosslive.codec.flow_solver import FlowSettings
from mosslive.codec.flow_stream import FlowStream, StreamSettings
from mosslive.codec.hift import Hift
from mosslive.codec.hift.stream import HiftStream
from mosslive.codec.mel_source import CachedMel, MelSource, PrefixMel

LIMIT = 3e-3  # of the golden README, as a share of the largest sample
PIECES = 3


def golden() -> tuple[dict[str, Tensor], dict[str, int]]:
    path = Path(__file__).parent.parent / "golden" / "stream.safetensors"
    with safe_open(path, framework="pt") as file:
        config = json.loads(file.metadata()["config"])
        return {name: file.get_tensor(name) for name in file.keys()}, config  # noqa: SIM118


@pytest.mark.parametrize("method", ["prefix", "cached"])
def test_pieces_equal_the_reference(method: str) -> None:
    """The reference's pieces at the same codes, by recomputation and from caches."""
    tensors, config = golden()
    weights = {
        part: {k.removeprefix(part): v for k, v in tensors.items() if k.startswith(part)}
        for part in ("w.flow.", "w.hift.")
    }
    flow = Flow.from_tensors(
        weights["w.flow."],
        FlowSettings(code_limit=int(config["vocab"])),
        head_dim=config["estimator"]["head_dim"],  # type: ignore[index]
    )
    prompt = FlowVoice(
        tensors["io.prompt_codes"], tensors["io.prompt_feat"], tensors["io.embedding"]
    )
    chunk, codes = int(config["chunk"]), tensors["io.codes"].tolist()
    source: MelSource
    if method == "prefix":
        source = PrefixMel(flow, prompt, chunk)
    else:
        live = FlowStream(flow, StreamSettings(chunk))
        source = CachedMel(live, live.open(prompt), "reference")
    vocoder = HiftStream(Hift.from_tensors(weights["w.hift."]))
    stream = DecoderStream(source, vocoder, len(prompt.prompt_codes), chunk, None)
    pieces = [piece for code in codes if len(piece := stream.push([code]))]
    pieces.append(stream.finish())
    assert len(pieces) == PIECES
    for index, piece in enumerate(pieces):
        wanted = tensors[f"io.piece{index}_zero_noise"].numpy()
        assert piece.shape == wanted.shape
        assert np.abs(piece - wanted).max() <= LIMIT * np.abs(wanted).max()
    torch.testing.assert_close(flow.noise[:, :104], tensors["io.rand_noise"], rtol=0, atol=1e-5)
