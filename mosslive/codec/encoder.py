"""The encoder: 16 kHz speech to one code per 80 ms, whole segments or block by block.

A causal Whisper trunk with average pooling and a nearest-neighbour quantiser. Knows nothing of
microphones or turns (`encoder_stream` does). Invariant: a state depends on no later frame, so
`step` over the blocks of a segment gives the states of `forward` over the whole.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mosslive.codec.encoder_layers import EncoderLayer, Past
from mosslive.codec.mel import BLOCK_SAMPLES, check_pcm, floor_and_scale, segment_log10_mel
from mosslive.errors import MossliveError, NotFinite, name_list
from mosslive.kernels.arithmetic import arithmetic
from mosslive.kernels.dispatch import AUTO, Dispatch

BLOCK_FRAMES = 8  # mel frames per code
POOL = 4  # states per code
_SEGMENT_SAMPLES = 480_000  # 30 s: longer sound is cut, and each piece encoded on its own


@dataclass(frozen=True)
class EncoderDims:
    mel_bands: int
    width: int
    heads: int  # not visible in any tensor: `encoder_attention_heads` of config.json
    ffn: int
    layers: int
    positions: int  # rows of the position table, four per code
    codes: int

    def __post_init__(self) -> None:
        if self.heads < 1 or self.width % self.heads:
            raise MossliveError(f"encoder: {self.heads} heads; allowed: divisors of {self.width}")
        if self.positions < POOL or self.positions % POOL:
            raise MossliveError(
                f"encoder: {self.positions} positions; allowed: multiples of {POOL} (one code)"
            )

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def segment_codes(self) -> int:
        """Codes of a full segment: 30 s, or less where the position table is shorter."""
        return min(_SEGMENT_SAMPLES // BLOCK_SAMPLES, self.positions // POOL)

    @property
    def segment_samples(self) -> int:
        return self.segment_codes * BLOCK_SAMPLES


@dataclass
class EncoderState:
    """The state of B streams. Every value is stored by its position and is overwritten only when
    that position is computed again. Setting `position` therefore goes back, exactly."""

    k: Tensor  # [layers, B, heads, positions, head_dim]
    v: Tensor
    frame_tails: Tensor  # [B, codes + 1, mel_bands, 2]: entry c is the two frames before block c
    conv_tails: Tensor  # [B, codes + 1, width]: entry c is conv1's last output before block c
    position: Tensor  # [B] int64: states done, four per code


class _Table(nn.Module):
    """Rows to look up; zeros until loaded. (The random values of nn.Embedding, on the device "meta"
    of `from_tensors`, import 800 modules in 2 s.)"""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(rows, width))


def check_codes(codes: Sequence[int]) -> None:
    """Raises `NotFinite` for codes of states that are not finite (`Encoder.quantise`)."""
    if codes and min(codes) < 0:
        raise NotFinite("the encoder computed values that are not finite numbers")


class Encoder(nn.Module):
    """Parameters are named as in the published file, without its `encoder.` prefix."""

    half_norms: Tensor

    def __init__(self, dims: EncoderDims, dispatch: Dispatch = AUTO) -> None:
        super().__init__()
        self.dims, self.dispatch = dims, dispatch
        # Causal: callers pad on the left themselves, because a stream has values there.
        self.conv1 = nn.Conv1d(dims.mel_bands, dims.width, 3)
        self.conv2 = nn.Conv1d(dims.width, dims.width, 3, stride=2)
        self.embed_positions = _Table(dims.positions, dims.width)
        self.layers = nn.ModuleList(
            EncoderLayer(dims.width, dims.heads, dims.ffn, dispatch) for _ in range(dims.layers)
        )
        self.codebook = _Table(dims.codes, dims.width)
        self.register_buffer("half_norms", torch.empty(dims.codes), persistent=False)
        self.register_load_state_dict_post_hook(  # type: ignore[no-untyped-call]
            lambda module, _: module.measure_codebook()
        )
        self.measure_codebook()
        self.eval().requires_grad_(False)

    def measure_codebook(self) -> None:
        """Stores |c|²/2 of every code. Call it after a change of the codebook."""
        self.half_norms = self.codebook.weight.detach().square().sum(1) / 2

    @classmethod
    def from_tensors(
        cls,
        tensors: Mapping[str, Tensor],
        heads: int,
        layers: int | None = None,
        prefix: str = "encoder.",
    ) -> "Encoder":
        """From the published file's tensors. Sizes come from the shapes; names without `prefix` and
        tensors that no code needs are ignored. `layers`: how many to run (`quantize_position` of
        config.json); None: all in the file. Float32 tensors are shared, not copied."""
        own = {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}

        def size(name: str, axis: int) -> int:
            if name not in own or own[name].dim() <= axis:
                raise MossliveError(f"encoder: {prefix}{name} is missing or has too few axes")
            return own[name].shape[axis]

        if layers is None:
            layers = 0
            while f"layers.{layers}.fc1.weight" in own:
                layers += 1
        dims = EncoderDims(
            mel_bands=size("conv1.weight", 1),
            width=size("conv1.weight", 0),
            heads=heads,
            ffn=size("layers.0.fc1.weight", 0),
            layers=layers,
            positions=size("embed_positions.weight", 0),
            codes=size("codebook.weight", 0),
        )
        with torch.device("meta"):  # allocates nothing: the tensors become the parameters
            encoder = cls(dims)
        needed = encoder.state_dict()
        if missing := [prefix + name for name in needed if name not in own]:
            raise MossliveError(f"encoder: missing tensors: {name_list(missing)}")
        for name, tensor in needed.items():
            if own[name].shape != tensor.shape:
                raise MossliveError(
                    f"encoder: {prefix}{name} is {list(own[name].shape)}; "
                    f"the other tensors require {list(tensor.shape)}"
                )
        encoder.load_state_dict({name: own[name].float() for name in needed}, assign=True)
        return encoder.requires_grad_(False)

    def to_precision(self, dtype: torch.dtype) -> "Encoder":
        """Converts in place: weights of products, and with them keys and values, become `dtype`.
        Norms, softmax, the sum of the layers and the quantiser's distances stay float32."""
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Conv1d)):
                module.to(dtype)
        return self

    @arithmetic("fp32")
    def forward(self, features: Tensor) -> Tensor:
        """features [B, mel_bands, F] of whole segments → states [B, ceil(F / 8), width]."""
        x = features.to(self.conv1.weight.dtype)
        x = _convolve(self.conv1, F.pad(x, (2, 0)))  # [B, F, width]
        x = _convolve(self.conv2, F.pad(x.transpose(1, 2), (2, 0)))  # [B, ceil(F / 2), width]
        x = x + self.embed_positions.weight[: x.shape[1]]
        return self._run(x, [None] * self.dims.layers)

    @arithmetic("fp32")
    def quantise(self, states: Tensor) -> Tensor:
        """states [..., width] → the nearest codes [...] int64, the lowest where two are equal; -1
        for states that are not finite. Those who read codes on the host refuse -1."""
        # argmin |h - c|² without the term that all codes share; max takes the first of equals.
        best = (states @ self.codebook.weight.T - self.half_norms).max(-1)
        return torch.where(best.values < torch.inf, best.indices, -1)  # false for NaN too

    def encode(self, wave: Tensor, heard: Callable[[int], None] | None = None) -> Tensor:
        """wave [n] at 16 kHz, float in [-1, 1] or int16 → codes [ceil(n / 1280)] int64 (per segment
        of 30 s; segments are independent). heard: is called with the number of codes of each
        segment. Raises `NotFinite` if the network computes no finite numbers."""
        wave = check_pcm(wave).to(self.conv1.weight.device)
        codes = [torch.zeros(0, dtype=torch.int64, device=wave.device)]
        for first in range(0, wave.shape[0], self.dims.segment_samples):
            segment = wave[first : first + self.dims.segment_samples]
            log10 = segment_log10_mel(segment, self.dims.mel_bands)
            features = floor_and_scale(log10, log10.amax())
            codes.append(self.quantise(self(features[None]))[0])
            if heard is not None:
                heard(len(codes[-1]))
        joined = torch.cat(codes)
        check_codes(joined.tolist())
        return joined

    def open(self, streams: int) -> EncoderState:
        """Zeros for `streams` streams at the start of a segment."""
        dims, like = self.dims, self.conv1.weight
        kv = (dims.layers, streams, dims.heads, dims.positions, dims.head_dim)
        entries = dims.positions // POOL + 1
        return EncoderState(
            # Zeros, not garbage: a masked key still takes part in the product, and 0 · NaN is NaN.
            k=like.new_zeros(kv),
            v=like.new_zeros(kv),
            frame_tails=like.new_zeros(streams, entries, dims.mel_bands, 2),
            conv_tails=like.new_zeros(streams, entries, dims.width),
            position=torch.zeros(streams, dtype=torch.int64, device=like.device),
        )

    @arithmetic("fp32")
    def step(
        self,
        state: EncoderState,
        frames: Tensor,
        reach: int | None = None,
        active: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Advances every stream by n codes → states [B, n, width], codes [B, n].

        frames [B, mel_bands, 8n]: of code c the frames 8c-1 .. 8c+6. Frame -1 does not exist: the
        first column of a stream at its start may hold anything finite.
        reach: how many positions attention reads, at least as many as every stream has after this
        step; None: all. The caller knows the number without reading the device; fewer are faster.
        active [B] bool: the other streams keep their position, whatever finite frames they get.
        Active streams must not exceed positions / 4 codes in all; the caller counts.
        """
        assert not frames.shape[2] % BLOCK_FRAMES, "whole codes only"
        new = frames.shape[2] // 2
        rows = torch.arange(frames.shape[0], device=frames.device)[:, None]
        places = state.position[:, None] + torch.arange(new, device=frames.device)  # [B, 4n]
        if active is not None:
            # Values at or after a stream's position are never read: idle streams may write there.
            within = places.clamp(max=self.dims.positions - 1)
            places = torch.where(active[:, None], places, within)
        x = self._stem(state, frames.to(self.conv1.weight.dtype), rows, places[:, ::POOL] // POOL)
        x = x + F.embedding(places, self.embed_positions.weight)
        position = state.position.clone()  # a copy: the state's own is changed below
        pasts = [Past(k, v, position, reach) for k, v in zip(state.k, state.v, strict=True)]
        states = self._run(x, pasts)
        state.position += new if active is None else new * active
        return states, self.quantise(states)

    @arithmetic("fp32")
    def blocks(self, frames: Tensor, position: Tensor, pasts: list[Past]) -> Tensor:
        """One block of each row, wherever in its segment → codes [B] int64. The pasts are pages:
        several rows may be blocks of one segment.

        frames [B, mel_bands, 11]: of code c the frames 8c-4 .. 8c+6, so that nothing of the block
        before is needed. Frames before the start may be anything finite. position int64 [B]: 4c.
        """
        later = (position > 0)[:, None]
        # Before the start there is no frame, and no output of conv1 either: both are zero.
        column = torch.arange(frames.shape[2], device=frames.device)
        x = torch.where((later | (column > 3))[:, None], frames, 0).to(self.conv1.weight.dtype)
        y = _convolve(self.conv1, x)  # [B, 9, width], of the frames 8c-2 .. 8c+6
        y = torch.where((later | (column[:-2] > 1))[..., None], y, 0)
        x = _convolve(self.conv2, y.transpose(1, 2))  # [B, 4, width]
        places = position[:, None] + column[:POOL]
        x = x + F.embedding(places, self.embed_positions.weight)
        return self.quantise(self._run(x, pasts)[:, 0])

    @staticmethod
    def truncate(state: EncoderState, code_index: int | Tensor) -> None:
        """Each stream goes back to before code `code_index` (one for all, or [B]), unless it is
        there or earlier already; 0 is the start of a segment."""
        state.position.clamp_(max=POOL * code_index)

    def _stem(self, state: EncoderState, frames: Tensor, rows: Tensor, codes: Tensor) -> Tensor:
        """Both convolutions. Reads the tails before the first code, writes those after each code.
        frames [B, mel_bands, 8n], rows [B, 1], codes [B, n] → [B, 4n, width]."""
        first = codes[:, :1]
        # Before the start there is no frame, and no output of conv1 either: both are zero.
        column = torch.arange(frames.shape[2], device=frames.device)
        exists = (first > 0) | (column > 0)  # [B, 8n]
        frames = torch.where(exists[:, None], frames, 0)
        x = torch.cat((state.frame_tails[rows, first][:, 0], frames), 2)
        y = torch.where(exists[..., None], _convolve(self.conv1, x), 0)  # [B, 8n, width]
        x = torch.cat((state.conv_tails[rows, first], y), 1)
        last_frames = frames[..., BLOCK_FRAMES - 2 :].unfold(2, 2, BLOCK_FRAMES)  # [B, bands, n, 2]
        state.frame_tails[rows, codes + 1] = last_frames.transpose(1, 2)
        state.conv_tails[rows, codes + 1] = y[:, BLOCK_FRAMES - 1 :: BLOCK_FRAMES]
        return _convolve(self.conv2, x.transpose(1, 2))

    def _run(self, x: Tensor, pasts: list[Past] | list[None]) -> Tensor:
        """x [B, t, width] → states [B, ceil(t / 4), width]."""
        for layer, past in zip(self.layers, pasts, strict=True):
            x = layer(x, past)
        x = F.pad(x, (0, 0, 0, -x.shape[1] % POOL))
        return x.view(x.shape[0], -1, POOL, x.shape[2]).mean(2)


def _convolve(conv: nn.Conv1d, x: Tensor) -> Tensor:
    """GELU of the convolution of x [B, C, T], time first: [B, T', width]. As a matrix product:
    float32 convolutions go through TF32 in cuDNN by default, which moves states by 3e-4 (H200)."""
    windows = x.unfold(2, conv.kernel_size[0], conv.stride[0]).transpose(1, 2)  # [B, T', C, 3]
    return F.gelu(F.linear(windows.flatten(2), conv.weight.flatten(1), conv.bias))
