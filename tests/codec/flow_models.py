"""The golden flow, and small flows with every weight random, for the tests of the flow."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from mosslive.codec.conformer import LOOK_AHEAD, ConformerDims
from mosslive.codec.estimator import EstimatorDims
from mosslive.codec.flow import Flow, FlowDims, FlowVoice
from mosslive.codec.flow_past import Whole
from mosslive.codec.flow_solver import FlowSettings

GOLDEN = Path(__file__).parents[1] / "golden" / "flow.safetensors"
GOLDEN_CHUNK = 5
GOLDEN_HEAD_DIM = 16
GOLDEN_CODES = 200
CODES = 50  # of the small flows


@dataclass(frozen=True)
class Golden:
    weights: dict[str, Tensor]
    io: dict[str, Tensor]
    flow: Flow
    voice: FlowVoice


@cache
def golden() -> Golden:
    stored = load_file(GOLDEN)
    weights = {name[2:]: value for name, value in stored.items() if name.startswith("w.")}
    io = {name[3:]: value for name, value in stored.items() if name.startswith("io.")}
    flow = Flow.from_tensors(weights, FlowSettings(code_limit=GOLDEN_CODES), GOLDEN_HEAD_DIM)
    voice = FlowVoice(io["prompt_codes"], io["prompt_feat"], io["embedding"])
    return Golden(weights, io, flow, voice)


@cache
def small_flow(steps: int = 2, layers: int = 1, up_layers: int = 2, guidance: float = 0.7) -> Flow:
    """Small enough for hundreds of passes; sizes are odd so that a mix-up of two would show."""
    conformer = ConformerDims(width=12, heads=2, ffn=10, layers=layers, up_layers=up_layers)
    estimator = EstimatorDims(
        bands=3,
        inputs=12,
        channels=8,
        time_hidden=9,
        inner=12,
        head_dim=4,
        ffn=7,
        n_blocks=1,
        mid_blocks=2,
    )
    flow = Flow(FlowDims(64, 5, conformer, estimator), FlowSettings(steps, guidance, CODES))
    generator = torch.Generator().manual_seed(7)
    for name, parameter in flow.named_parameters():
        scale = 0.3 if parameter.dim() > 1 else 0.5
        base = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        parameter.data = base + scale * torch.randn(parameter.shape, generator=generator)
    return flow.requires_grad_(False).eval()


def small_voice(prompt: int, seed: int) -> FlowVoice:
    generator = torch.Generator().manual_seed(seed)
    return FlowVoice(
        torch.randint(CODES, (prompt,), generator=generator),
        torch.randn(4 * prompt, 3, generator=generator),
        torch.randn(5, generator=generator),
    )


def small_codes(count: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(1000 + seed)
    codes: list[int] = torch.randint(CODES, (count,), generator=generator).tolist()
    return codes


def hidden(flow: Flow, tokens: Tensor, chunk: int | None, finalize: bool) -> Tensor:
    """The conformer's output [4n, d] for tokens [N]: n = N, or N - 3 if not finalising."""
    count = len(tokens) - (0 if finalize else LOOK_AHEAD)
    present = torch.arange(count + LOOK_AHEAD) < len(tokens)
    codes = F.pad(tokens, (0, count + LOOK_AHEAD - len(tokens)))
    like, table = flow.noise, flow.encoder.table
    past = Whole(count, chunk, like, table)
    frames = Whole(4 * count, None if chunk is None else 4 * chunk, like, table)
    result: Tensor = flow.encoder(flow.input_embedding(codes[None]), present[None], past, frames)
    return result[0]


def error(found: Tensor, wanted: Tensor) -> float:
    """max |difference| / max |wanted|, as the golden README states its limits."""
    assert found.shape == wanted.shape, f"{found.shape} instead of {wanted.shape}"
    return float((found - wanted).abs().max() / wanted.abs().max())
