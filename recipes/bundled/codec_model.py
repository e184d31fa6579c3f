"""The codec during training: the package's encoder and flow, with parts that only training needs.

A linear bridge replaces the flow's table of codes, so that the encoder also learns from the mel. At
the end the table is the bridge applied to the codebook, which is the same function. CTC heads
before and after the quantiser keep the words in the codes. Knows no files. Invariant:
`flow_tensors` and `encoder_tensors` have the published names.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mosslive.codec.conformer import LOOK_AHEAD
from mosslive.codec.encoder import Encoder
from mosslive.codec.flow import Flow, FlowDims
from mosslive.codec.flow_past import Whole
from mosslive.codec.flow_solver import Condition, FlowSettings, solve
from mosslive.kernels.arithmetic import arithmetic
from mosslive.kernels.dispatch import TORCH_ONLY
from recipes.bundled.flow_start import begin_straight, can_begin_straight
from recipes.bundled.quantiser import Quantiser
from recipes.bundled.sizes import SPEAKER_WIDTH, Sizes

MEL_SCALE = 2.5  # standard deviation of ln mel values: the unit of the losses
_MEL_MEAN = -6.0
_FRAMES_PER_CODE = 4
_POSITIONS_SCALE = 0.1
_UNCONDITIONAL = 0.2  # share of rows without a condition, for the guidance


def speaker_vector() -> Tensor:
    """[192], of length one: the only voice."""
    return torch.full((SPEAKER_WIDTH,), SPEAKER_WIDTH**-0.5)


class Heard(NamedTuple):
    states: Tensor  # [B, W, width] before the quantiser, float32
    fast: Tensor  # [B, 4W, width]: the encoder's states at 50 a second


@dataclass(frozen=True)
class Losses:
    mu: Tensor
    flow: Tensor
    commit: Tensor
    ctc_states: Tensor
    ctc_codes: Tensor

    def total(self) -> Tensor:
        spoken = 2 * self.mu + self.flow
        return spoken + 0.5 * self.commit + 0.3 * self.ctc_states + 0.5 * self.ctc_codes


class CodecModel(nn.Module):
    def __init__(self, sizes: Sizes, phones: int) -> None:
        """`phones`: number of different phones, without the CTC blank."""
        super().__init__()
        self.sizes = sizes
        width = sizes.encoder.width
        self.encoder = Encoder(sizes.encoder, TORCH_ONLY).requires_grad_(True)
        self.encoder.embed_positions.weight.requires_grad_(False)
        self.encoder.codebook.weight.requires_grad_(False)
        # PyTorch's initialisation would make the sound a tenth of the positions it is added to:
        # for hundreds of steps the layers would see positions and no sound.
        for conv in (self.encoder.conv1, self.encoder.conv2):
            nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
        positions = _POSITIONS_SCALE * sinusoids(sizes.encoder.positions, width)
        self.encoder.embed_positions.weight.copy_(positions)
        self.quantiser = Quantiser(sizes.codes, width)
        # The flow's own table is made at the end; one row is enough until then.
        dims = FlowDims(1, SPEAKER_WIDTH, sizes.flow.conformer, sizes.flow.estimator)
        self.flow = Flow(dims, FlowSettings(sizes.steps, sizes.guidance, code_limit=1))
        self.bridge = nn.Linear(width, sizes.flow.conformer.width)
        self.ctc_states = nn.Linear(width, phones + 1)
        self.ctc_codes = nn.Conv1d(width, _FRAMES_PER_CODE * (phones + 1), 5, padding=2)
        with torch.no_grad():  # starts near an average mel, not two standard deviations above it
            self.flow.encoder_proj.bias.fill_(_MEL_MEAN)
            self.flow.encoder_proj.weight.mul_(0.1)
        if can_begin_straight(self.flow.estimator):
            begin_straight(self.flow.estimator)
        self.flow.input_embedding.weight.requires_grad_(False)
        self._fast: list[Tensor] = []
        self.encoder.layers[-1].register_forward_hook(self._keep)
        self.register_buffer("speaker", speaker_vector(), persistent=False)

    def _keep(self, _: nn.Module, __: object, out: Tensor) -> None:
        self._fast = [out]

    def hear(self, features: Tensor) -> Heard:
        """features [B, 128, 8W] → states."""
        states = self.encoder(features).float()
        (fast,) = self._fast
        self._fast = []
        return Heard(states, fast)

    def mu(self, vectors: Tensor, chunk: int | None, finalize: bool) -> Tensor:
        """Vectors of codes [B, W, width] → mu [B, 80, 4n]: n = W, or W - 3 if not finalising."""
        x = self.bridge(vectors).float()
        count = x.shape[1]
        present = torch.ones(1, count, dtype=torch.bool, device=x.device)
        if finalize:
            x, present = F.pad(x, (0, 0, 0, LOOK_AHEAD)), F.pad(present, (0, LOOK_AHEAD))
        else:
            count -= LOOK_AHEAD
        tokens, frames = self._pasts(count, chunk)
        # Scores of positions are differences of sines: half precision is too coarse.
        with torch.autocast(x.device.type, enabled=False):
            hidden = self.flow.encoder(x, present, tokens, frames)
            y: Tensor = self.flow.encoder_proj(hidden).mT
        return y

    def _pasts(self, codes: int, chunk: int | None) -> tuple[Whole, Whole]:
        table, like = self.flow.encoder.table, self.flow.noise
        wide = None if chunk is None else _FRAMES_PER_CODE * chunk
        return (
            Whole(codes, chunk, like, table),
            Whole(_FRAMES_PER_CODE * codes, wide, like, table),
        )

    def flow_loss(
        self, mel: Tensor, mu: Tensor, known: Tensor, chunk: int | None, generator: torch.Generator
    ) -> Tensor:
        """Conditional flow matching, all [B, 80, T]: the velocity from noise to mel at a random
        time of every row."""
        rows = len(mel)

        def uniform(*shape: int) -> Tensor:
            return torch.rand(shape, generator=generator, device=mel.device)

        t = 1 - torch.cos(uniform(rows) * (math.pi / 2))
        noise = torch.randn(mel.shape, generator=generator, device=mel.device)
        at = t[:, None, None]
        x = (1 - at) * noise + at * mel
        speaker = self.flow.spk_embed_affine_layer(self.speaker)[None, :, None].expand_as(mel)
        condition = torch.cat((mu, speaker, known), 1)
        if self.sizes.guidance:  # the unconditional output has to be learned as well
            condition = condition * (uniform(rows, 1, 1) >= _UNCONDITIONAL)
        past = self._pasts(mel.shape[2] // _FRAMES_PER_CODE, chunk)[1]
        found = self.flow.estimator(torch.cat((x, condition), 1), t, past)
        loss: Tensor = (found.float() - (mel - noise)).square().mean() / MEL_SCALE**2
        return loss

    @torch.no_grad()
    def speak(self, vectors: Tensor, chunk: int | None, known: Tensor | None = None) -> Tensor:
        """Vectors [B, W, width] → mel [B, 80, 4W] by the package's solver."""
        mu = self.mu(vectors, chunk, finalize=True)
        speaker = self.flow.spk_embed_affine_layer(self.speaker).expand(len(mu), -1)
        prompt = torch.zeros_like(mu) if known is None else known
        noise = self.flow.noise[None, :, : mu.shape[2]].expand_as(mu)
        past = self._pasts(vectors.shape[1], chunk)[1]
        condition = Condition(mu, speaker, prompt)
        return solve(self.flow.estimator, noise, condition, past, self.flow.settings)

    def phone_losses(
        self, heard: Heard, vectors: Tensor, phones: Tensor, counts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """CTC of the fast states and of the codes. phones [B, P] from 1; counts [B] on the host."""
        by_state = self.ctc_states(heard.fast)
        return ctc(by_state, phones, counts), ctc(self.phone_logits(vectors), phones, counts)

    def phone_logits(self, vectors: Tensor) -> Tensor:
        """Vectors of codes [B, W, width] → [B, 4W, phones + 1]."""
        by_code: Tensor = self.ctc_codes(vectors.mT).mT  # [B, W, 4 · (phones + 1)]
        rows, codes, _ = by_code.shape
        return by_code.reshape(rows, _FRAMES_PER_CODE * codes, -1)

    # Stored tensors

    @torch.no_grad()
    def encoder_tensors(self) -> dict[str, Tensor]:
        tensors = dict(self.encoder.state_dict())
        tensors["codebook.weight"] = self.quantiser.codebook
        return {name: tensor.detach().float().cpu() for name, tensor in tensors.items()}

    @torch.no_grad()
    @arithmetic("fp32")
    def flow_tensors(self) -> dict[str, Tensor]:
        tensors = dict(self.flow.state_dict())
        tensors["input_embedding.weight"] = self.bridge(self.quantiser.codebook)
        return {name: tensor.detach().float().cpu() for name, tensor in tensors.items()}

    @torch.no_grad()
    def settle_hearing(self) -> None:
        """Rounds encoder and codebook to float16: the codes of the stored encoder then equal those
        that the language model is trained on."""
        for tensor in (*self.encoder.state_dict().values(), self.quantiser.codebook):
            tensor.copy_(tensor.half().float())
        self.encoder.codebook.weight.copy_(self.quantiser.codebook)
        self.encoder.measure_codebook()
        self.encoder.requires_grad_(False)


def ctc(logits: Tensor, phones: Tensor, counts: Tensor) -> Tensor:
    """logits [B, T, phones + 1], the blank is 0 → mean loss per phone."""
    steps = torch.full((len(logits),), logits.shape[1], dtype=torch.int64)
    logs = logits.float().log_softmax(-1).transpose(0, 1)
    each = F.ctc_loss(logs, phones, steps, counts, reduction="none", zero_infinity=True)
    return each.sum() / max(1, int(counts.sum()))


def sinusoids(positions: int, width: int) -> Tensor:
    """[positions, width]: sines, then cosines, as Whisper has them."""
    half = width // 2
    scales = torch.exp(torch.arange(half) * (-math.log(10000.0) / (half - 1)))
    angles = torch.arange(positions)[:, None] * scales
    return torch.cat((angles.sin(), angles.cos()), 1)
