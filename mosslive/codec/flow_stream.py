"""The flow live: codes come in chunks, mel goes out in chunks, and nothing is computed twice.

`open` computes a voice's prompt once; `fork` of that state starts a reply; `step` moves any number
of replies by a chunk in one batch; `finish` renders what is left. It does not decide when to step
(`flow_hops` does) and keeps no queue. Invariant: what `step` has returned equals the frames that
`Flow.mel_prefix` gives for the same codes, and stays so whatever codes follow.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from mosslive.codec.conformer import FRAMES_PER_TOKEN, LOOK_AHEAD
from mosslive.codec.flow import Codes, Flow, FlowVoice
from mosslive.codec.flow_hops import settled_prompt
from mosslive.codec.flow_memory import Memory, MemoryForm
from mosslive.codec.flow_resume import Resumed, Sight
from mosslive.codec.flow_solver import Condition, solve
from mosslive.errors import MossliveError

TailRule = Literal["reference", "cached"]


@dataclass(frozen=True)
class StreamSettings:
    chunk: int = 5  # codes; what the weights were trained for (5 or 25)
    # Frames the estimator sees before the chunk it computes; None: all. A bound changes results.
    # The conformer always sees all: its keys and values are half a percent of the memory.
    window_frames: int | None = None
    block: int = 25  # codes; buffers grow and are read in steps of this size

    def __post_init__(self) -> None:
        for name in ("chunk", "block"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed: 1 or more")
        if self.window_frames is not None and self.window_frames < 0:
            raise ValueError(f"window_frames is {self.window_frames}; allowed: 0 or more, or None")


@dataclass(eq=False)
class FlowState:
    """One reply on its way, or a voice on which replies can start."""

    voice: FlowVoice
    prompt: list[int]
    prompt_feat: Tensor  # [4P, bands] on the flow's device
    speaker: Tensor  # [bands]
    tokens: Memory  # conformer at 12.5/s
    frames: Memory  # conformer at 50/s
    estimator: Memory  # layers and convolutions of every Euler step, one step after another
    codes: list[int]  # of the reply, rendered
    closed: bool = False

    @property
    def position(self) -> int:
        """Tokens computed, prompt included."""
        return self.tokens.own.end

    @property
    def own_bytes(self) -> int:
        """Memory that `close` frees for certain; what is shared with the voice is not counted."""
        memories = (self.tokens, self.frames, self.estimator)
        return sum(memory.own.bytes + memory.tails.nbytes for memory in memories)

    def fork(self) -> "FlowState":
        """A second reply that continues from here. Of a freshly opened voice this copies only
        convolution tails; all keys and values stay shared."""
        _require_open(self)
        return replace(
            self,
            tokens=self.tokens.fork(),
            frames=self.frames.fork(),
            estimator=self.estimator.fork(),
            codes=list(self.codes),
        )

    def close(self) -> None:
        """Lets go of all tensors, at once and whoever still holds the state."""
        for memory in (self.tokens, self.frames, self.estimator):
            memory.close()
        self.prompt_feat = self.speaker = torch.empty(0)
        self.closed = True


class _Move(NamedTuple):
    state: FlowState
    tokens: list[int]  # to compute, and behind them those to look at
    new: int  # tokens to compute
    codes: list[int]  # the reply's codes among them, the last ones


class FlowStream:
    def __init__(self, flow: Flow, settings: StreamSettings) -> None:
        self.flow, self.settings = flow, settings
        chunk, block, frames = settings.chunk, settings.block, FRAMES_PER_TOKEN
        self._token_sight = Sight(chunk, None, block)
        self._frame_sight = Sight(frames * chunk, None, frames * block)
        self._estimator_sight = Sight(frames * chunk, settings.window_frames, frames * block)

    @torch.no_grad()
    def open(self, voice: FlowVoice) -> FlowState:
        """Computes the chunks of the prompt that no reply can change. Keep the result with the
        voice and start each reply on a fork of it."""
        flow, noise = self.flow, self.flow.noise
        prompt: list[int] = flow.check_voice(voice).tolist()
        flow.check_length(len(prompt))
        tokens, frames, estimator = (Memory.empty(form, noise) for form in self._forms())
        prompt_feat, speaker = voice.prompt_feat.to(noise), flow.speaker(voice)
        state = FlowState(voice, prompt, prompt_feat, speaker, tokens, frames, estimator, [])
        settled = settled_prompt(len(prompt), self.settings.chunk)
        if settled:
            self._advance([_Move(state, prompt[: settled + LOOK_AHEAD], settled, [])])
        tokens.share(None)
        frames.share(None)
        estimator.share(self.settings.window_frames)
        return state

    @torch.no_grad()
    def step(self, states: Sequence[FlowState], codes: Sequence[Codes]) -> list[Tensor]:
        """Each stream's next h + 3 codes, from its first code not rendered yet → its next 4h mel
        frames [bands, 4h]. The last three codes are context and come again in the next call."""
        moves = []
        for state, given in zip(states, codes, strict=True):
            checked = self._checked(state, given)
            hop = len(checked) - LOOK_AHEAD
            reached = len(state.prompt) + len(state.codes) + hop
            if hop < 1 or reached % self.settings.chunk:
                raise MossliveError(
                    f"{len(checked)} codes to a stream with {len(state.prompt)} prompt codes and "
                    f"{len(state.codes)} rendered; allowed: {LOOK_AHEAD} more than end on a "
                    f"multiple of {self.settings.chunk}"
                )
            tokens = state.prompt[state.position :] + checked
            moves.append(_Move(state, tokens, len(tokens) - LOOK_AHEAD, checked[:hop]))
        return self._advance(moves) if moves else []

    @torch.no_grad()
    def finish(self, state: FlowState, codes: Codes, rule: TailRule) -> Tensor:
        """The reply's last codes, all that are not rendered yet → their mel [bands, 4n]; the state
        is closed.

        "reference": what the reference does, the whole reply once more with full attention.
        "cached": the streaming mask to the end, from the caches; costs one step, and differs.
        """
        if rule not in get_args(TailRule):
            raise ValueError(f"rule is {rule!r}; allowed: {', '.join(get_args(TailRule))}")
        checked = self._checked(state, codes)
        if not checked:
            mel = self.flow.noise.new_zeros(len(self.flow.noise), 0)
        elif rule == "reference":
            whole = self.flow.mel_offline(state.codes + checked, state.voice)
            mel = whole[:, FRAMES_PER_TOKEN * len(state.codes) :]
        else:
            tokens = state.prompt[state.position :] + checked
            (mel,) = self._advance([_Move(state, tokens, len(tokens), checked)])
        state.close()
        return mel

    def _checked(self, state: FlowState, codes: Codes) -> list[int]:
        _require_open(state)
        checked: list[int] = self.flow.check_codes(codes).tolist()
        self.flow.check_length(len(state.prompt) + len(state.codes) + len(checked))
        return checked

    def _forms(self) -> tuple[MemoryForm, MemoryForm, MemoryForm]:
        flow, steps = self.flow, self.flow.settings.steps
        conformer, estimator = flow.dims.conformer, flow.estimator
        heads, width = conformer.heads, conformer.width // conformer.heads
        token_tail, frame_tail = flow.encoder.tail_values()
        return (
            MemoryForm(conformer.layers, 1, heads, width, token_tail),
            MemoryForm(conformer.up_layers, 1, heads, width, frame_tail),
            MemoryForm(
                steps * estimator.layers,
                2,
                estimator.dims.heads,
                estimator.dims.head_dim,
                steps * estimator.tail_values(),
            ),
        )

    def _advance(self, moves: list[_Move]) -> list[Tensor]:
        states = [move.state for move in moves]
        assert len(set(map(id, states))) == len(states), "a stream moves once per call"
        flow, device = self.flow, self.flow.noise.device
        starts = [FRAMES_PER_TOKEN * state.position for state in states]
        new = [move.new for move in moves]
        new_frames, table = [FRAMES_PER_TOKEN * n for n in new], flow.encoder.table
        tokens = Resumed([state.tokens for state in states], new, self._token_sight, table)
        frames = Resumed([state.frames for state in states], new_frames, self._frame_sight, table)
        estimator = Resumed(
            [state.estimator for state in states], new_frames, self._estimator_sight
        )
        codes, present = _padded([move.tokens for move in moves], max(new) + LOOK_AHEAD, device)
        columns = torch.arange(max(new_frames), device=device)
        places = torch.tensor(starts, device=device)[:, None] + columns  # [B, T]
        noise = flow.noise[:, places.clamp(max=flow.noise.shape[1] - 1)].transpose(0, 1)
        known = torch.zeros_like(noise)  # [B, bands, T]
        for row, (state, start) in enumerate(zip(states, starts, strict=True)):
            piece = state.prompt_feat[start : start + len(columns)]
            known[row, :, : len(piece)] = piece.T
        condition = Condition(
            mu=flow.mu(codes, present, tokens, frames),
            speaker=torch.stack([state.speaker for state in states]),
            known=known,
        )
        mel = solve(flow.estimator, noise, condition, estimator, flow.settings)
        for past in (tokens, frames, estimator):
            past.commit()
        pieces = []
        for row, move in enumerate(moves):
            move.state.codes += move.codes
            end = FRAMES_PER_TOKEN * move.new
            pieces.append(mel[row, :, end - FRAMES_PER_TOKEN * len(move.codes) : end])
        return pieces


def _require_open(state: FlowState) -> None:
    if state.closed:
        raise MossliveError("this stream is closed; fork an opened voice to start another")


def _padded(tokens: list[list[int]], width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """→ [B, width] int64, and bool: which of them are there."""
    rows = [row + [0] * (width - len(row)) for row in tokens]
    held = torch.tensor([len(row) for row in tokens], device=device)
    return torch.tensor(rows, device=device), torch.arange(width, device=device) < held[:, None]
