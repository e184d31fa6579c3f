"""The flow: codes and a voice → mel frames, four per code, by prefix recomputation.

Every call computes everything again, so it is the definition that the cached form (`flow_stream`)
is tested against. It does not know where codes come from or how the mel is used. Invariant:
prompt and reply are one sequence; chunks, noise and positions count from the prompt's first code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mosslive.codec.conformer import (
    FRAMES_PER_TOKEN,
    LOOK_AHEAD,
    ConformerDims,
    UpsampleConformer,
)
from mosslive.codec.estimator import PUBLISHED_HEAD_DIM, Estimator, EstimatorDims
from mosslive.codec.flow_past import Past, Whole
from mosslive.codec.flow_solver import (
    NOISE_FRAMES,
    PUBLISHED,
    Condition,
    FlowSettings,
    fixed_noise,
    solve,
)
from mosslive.codec.flow_tensors import load_strictly, shape_of
from mosslive.config import SECONDS_PER_CODE
from mosslive.errors import MossliveError

Codes = Sequence[int] | Tensor  # on the host: reading a device tensor would wait for the device


@dataclass(frozen=True, eq=False)
class FlowVoice:
    """A voice prompt as the flow takes it; P = 0 means no prompt, zeros mean no speaker."""

    prompt_codes: Tensor  # [P] int64
    prompt_feat: Tensor  # [4P, bands], log-mel of the prompt
    embedding: Tensor  # [speaker width], not normalised


@dataclass(frozen=True)
class FlowDims:
    rows: int  # of the embedding table; more than there are codes
    speaker: int
    conformer: ConformerDims
    estimator: EstimatorDims

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], head_dim: int) -> "FlowDims":
        return cls(
            rows=shape_of(tensors, "input_embedding.weight", 2)[0],
            speaker=shape_of(tensors, "spk_embed_affine_layer.weight", 2)[1],
            conformer=ConformerDims.from_tensors(tensors),
            estimator=EstimatorDims.from_tensors(tensors, head_dim),
        )


class Flow(nn.Module):
    noise: Tensor

    def __init__(self, dims: FlowDims, settings: FlowSettings = PUBLISHED) -> None:
        super().__init__()
        if settings.code_limit > dims.rows:
            raise MossliveError(
                f"flow: code_limit is {settings.code_limit}, but input_embedding.weight has only "
                f"{dims.rows} rows"
            )
        self.dims, self.settings = dims, settings
        width, bands = dims.conformer.width, dims.estimator.bands
        if dims.estimator.inputs != 4 * bands:
            raise MossliveError(
                f"flow: the estimator takes {dims.estimator.inputs} channels; {4 * bands} are "
                f"needed, four times the {bands} mel bands it gives"
            )
        self.input_embedding = nn.Embedding(dims.rows, width)
        self.spk_embed_affine_layer = nn.Linear(dims.speaker, bands)
        self.encoder = UpsampleConformer(dims.conformer, NOISE_FRAMES)
        self.encoder_proj = nn.Linear(width, bands)
        self.decoder = nn.ModuleDict({"estimator": Estimator(dims.estimator)})
        self.register_buffer("noise", fixed_noise(bands), persistent=False)

    @classmethod
    def from_tensors(
        cls,
        tensors: Mapping[str, Tensor],
        settings: FlowSettings = PUBLISHED,
        head_dim: int = PUBLISHED_HEAD_DIM,
    ) -> "Flow":
        """The network that the tensors describe, in float32 however they are stored. `head_dim`: of
        the estimator; it cannot be read from a shape."""
        dims = FlowDims.from_tensors(tensors, head_dim)
        with torch.device("meta"):  # weights come from the tensors: nothing to initialise
            flow = cls(dims, settings)
        return load_strictly(flow, tensors)

    @property
    def estimator(self) -> Estimator:
        network = self.decoder["estimator"]
        assert isinstance(network, Estimator)
        return network

    @torch.no_grad()
    def mel_offline(self, codes: Codes, voice: FlowVoice) -> Tensor:
        """All N codes of a reply, every frame seeing every frame → mel [bands, 4N]."""
        return self._mel(self.check_codes(codes), voice, None, finalize=True)

    @torch.no_grad()
    def mel_prefix(
        self, codes_so_far: Codes, voice: FlowVoice, chunk: int, finalize: bool
    ) -> Tensor:
        """The reply's mel as far as N codes determine it, with the streaming mask of `chunk` codes.

        With `finalize` False the last three codes are context only: [bands, 4(N - 3)], of which
        the frames of whole chunks do not change when more codes come. True: [bands, 4N].
        """
        if chunk < 1:
            raise MossliveError(f"chunk is {chunk} codes; allowed: 1 or more")
        return self._mel(self.check_codes(codes_so_far), voice, chunk, finalize)

    def check_codes(self, codes: Codes) -> Tensor:
        """[N] int64 on the host; raises `MossliveError` for a number that is not a code."""
        checked = _whole_numbers(codes)
        if checked.dim() != 1:
            raise MossliveError(f"codes have shape {list(checked.shape)}; one axis is needed")
        wrong = ((checked < 0) | (checked >= self.settings.code_limit)).nonzero()
        if len(wrong):
            index = int(wrong[0])
            raise MossliveError(
                f"code {int(checked[index])} at index {index} is not a code; allowed: "
                f"0..{self.settings.code_limit - 1}"
            )
        return checked

    def check_voice(self, voice: FlowVoice) -> Tensor:
        """The voice's prompt codes, checked like any codes, once all its sizes agree."""
        codes = self.check_codes(voice.prompt_codes)
        frames, bands = FRAMES_PER_TOKEN * len(codes), len(self.noise)
        sizes = {
            "prompt_feat": (voice.prompt_feat, (frames, bands)),
            "embedding": (voice.embedding, (self.dims.speaker,)),
        }
        for name, (tensor, needed) in sizes.items():
            if tuple(tensor.shape) != needed:
                raise MossliveError(
                    f"voice: {name} has shape {list(tensor.shape)}; {list(needed)} is needed for "
                    f"{len(codes)} prompt codes"
                )
        return codes

    def check_length(self, tokens: int) -> None:
        """Raises `MossliveError` if the fixed noise is too short for this many tokens."""
        most = self.noise.shape[1] // FRAMES_PER_TOKEN
        if tokens > most:
            raise MossliveError(
                f"{tokens} codes, prompt included; allowed: {most}, which is "
                f"{most * SECONDS_PER_CODE:g} s"
            )

    def speaker(self, voice: FlowVoice) -> Tensor:
        """[bands]: the speaker vector on the unit sphere (zeros stay zeros), projected."""
        embedding = voice.embedding.to(self.noise)
        y: Tensor = self.spk_embed_affine_layer(F.normalize(embedding, dim=0, eps=1e-12))
        return y

    def mu(self, codes: Tensor, present: Tensor, tokens: Past, frames: Past) -> Tensor:
        """codes [B, n + 3] int64, present [B, n + 3] bool → [B, bands, 4n]."""
        hidden = self.encoder(self.input_embedding(codes), present, tokens, frames)
        y: Tensor = self.encoder_proj(hidden)
        return y.mT

    def _mel(self, codes: Tensor, voice: FlowVoice, chunk: int | None, finalize: bool) -> Tensor:
        prompt = self.check_voice(voice)
        spoken = len(codes) - (0 if finalize else LOOK_AHEAD)
        if spoken < 1:
            need = 1 if finalize else LOOK_AHEAD + 1
            raise MossliveError(f"{len(codes)} codes; at least {need} are needed")
        count = len(prompt) + spoken
        self.check_length(count)
        frames, device = FRAMES_PER_TOKEN * count, self.noise.device
        tokens = torch.cat((prompt, codes)).to(device)
        present = torch.arange(count + LOOK_AHEAD, device=device) < len(tokens)
        tokens = F.pad(tokens, (0, count + LOOK_AHEAD - len(tokens)))
        table, frame_chunk = self.encoder.table, None if chunk is None else FRAMES_PER_TOKEN * chunk
        token_past = Whole(count, chunk, self.noise, table)
        frame_past = Whole(frames, frame_chunk, self.noise, table)
        known = F.pad(voice.prompt_feat.to(self.noise).T, (0, FRAMES_PER_TOKEN * spoken))
        condition = Condition(
            mu=self.mu(tokens[None], present[None], token_past, frame_past),
            speaker=self.speaker(voice)[None],
            known=known[None],
        )
        noise = self.noise[None, :, :frames]
        mel = solve(self.estimator, noise, condition, frame_past, self.settings)
        return mel[0, :, FRAMES_PER_TOKEN * len(prompt) :]


def _whole_numbers(codes: Codes) -> Tensor:
    """On the host. Does not round: a code of 1.5 is an error."""
    try:
        found = torch.as_tensor(codes, device="cpu")
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise MossliveError("codes that are not a list of numbers; allowed: integers") from None
    if found.numel() and (found.dtype == torch.bool or found.is_floating_point()):
        raise MossliveError(f"codes of type {found.dtype}; allowed: integers")
    return found.to(torch.int64)
