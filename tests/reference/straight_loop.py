"""The two-channel generation loop, written out once from top to bottom.

Purpose: an answer to compare the runtime's generation with, row by row and mode by mode. It is
meant to be checked by reading, so everything happens in one function, in the order of the
specification, with no helpers to look up: transition, logits, audio mask, repetition penalty,
temperature, top-k, top-p, draw, overwrite, append, stop.

What this file deliberately does not know: the runtime package, torch, where logits come from,
random generators (the caller hands in the random numbers), tokenisers, caches, batches, streaming,
skipped heads, and what the rows mean as text or sound.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Row = tuple[int, int]
LogitsOf = Callable[[list[Row]], tuple[NDArray[np.float32], NDArray[np.float32]]]
Uniform = Callable[[int, int], float]


@dataclass(frozen=True)
class Ids:
    """The ids with a meaning in the loop; eosp and audio_pad are audio ids, the rest text ids."""

    modality_pad: int
    sosp: int
    eosp: int
    audio_pad: int
    stops: tuple[int, ...]


@dataclass(frozen=True)
class Settings:
    """One set for both channels; top_k 0 and top_p 1 are off, and greedy ignores the filters."""

    greedy: bool
    temperature: float
    top_k: int
    top_p: float
    repetition_penalty: float
    max_new: int
    min_new: int


@dataclass(frozen=True)
class Trace:
    """The new rows (no prompt), the mode each was sampled in, and why the loop ended."""

    rows: list[Row]
    modes: list[str]
    stop: str


def straight_loop(
    logits_of: LogitsOf, prompt: Sequence[Row], ids: Ids, settings: Settings, uniform: Uniform
) -> Trace:
    """Generate rows after `prompt`.

    logits_of(rows) gives the text and audio logits of the last of the rows. uniform(step, channel)
    gives a number in [0, 1) for one draw: step counts from 1, channel 0 is text and 1 is audio. It
    is asked at every step for text and then for audio, whatever the mode; never when greedy.
    """
    history: list[Row] = [(int(text), int(audio)) for text, audio in prompt]
    new_rows: list[Row] = []
    modes: list[str] = []

    # Initial mode. The second test wins: a row (modality_pad, audio_pad) starts in text mode.
    mode = "text"
    if history[-1][0] == ids.modality_pad:
        mode = "audio"
    if history[-1][1] == ids.audio_pad:
        mode = "text"

    for step in range(1, settings.max_new + 1):
        # Transition. Two separate tests and no "else": one row may fire both.
        if mode == "text" and history[-1][0] == ids.sosp:
            mode = "audio"
        if mode == "audio" and history[-1][1] == ids.eosp:
            mode = "text"

        # Logits. Copied, because they are changed below and belong to the caller.
        text_logits, audio_logits = logits_of(list(history))
        text_scores = np.array(text_logits, dtype=np.float32)
        audio_scores = np.array(audio_logits, dtype=np.float32)

        # Audio mask.
        audio_scores[ids.eosp + 1 :] = -np.inf
        if step < settings.min_new:
            audio_scores[ids.eosp] = -np.inf

        picked: list[int] = []
        for channel, scores in ((0, text_scores), (1, audio_scores)):
            # Repetition penalty, from this channel's own history, once per id.
            penalty = np.float32(settings.repetition_penalty)
            for seen in sorted({row[channel] for row in history}):
                if scores[seen] >= 0:
                    scores[seen] = scores[seen] / penalty
                else:
                    scores[seen] = scores[seen] * penalty

            if settings.greedy:
                # argmax gives the first, that is the lowest, of equal maxima.
                picked.append(int(np.argmax(scores)))
                continue

            # Temperature.
            scores = scores / np.float32(settings.temperature)

            # Top-k. Ties with the k-th largest stay.
            if 0 < settings.top_k < len(scores):
                kth_largest = np.sort(scores)[-settings.top_k]
                scores[scores < kth_largest] = -np.inf

            # Descending, equal values by lowest index: a stable sort keeps the index order.
            order = np.argsort(-scores, kind="stable")

            # Top-p. Walk up from the smallest and drop while the sum, including the token looked
            # at, is within 1 - top_p. order[0] is the largest and always stays.
            if settings.top_p < 1.0:
                weights = np.exp(scores.astype(np.float64) - np.float64(scores[order[0]]))
                probabilities = weights / weights.sum()
                cumulative = 0.0
                for token in order[:0:-1]:
                    cumulative += probabilities[token]
                    if cumulative <= 1.0 - settings.top_p:
                        scores[token] = -np.inf

            # Draw. Dropping set the tail of the order to -inf, so the order itself still holds.
            kept = [int(token) for token in order if scores[token] > -np.inf]
            kept_scores = scores[kept].astype(np.float64)
            weights = np.exp(kept_scores - kept_scores[0])
            cumulatives = np.cumsum(weights / weights.sum())
            total = cumulatives[-1]
            threshold = uniform(step, channel) * total
            for token, reached in zip(kept, cumulatives, strict=True):
                # The second test only matters where the product above rounded up to the total.
                if reached > threshold or reached == total:
                    picked.append(token)
                    break

        # Overwrite. In text mode the sampled audio id stays: never embedded, but in the history.
        text, audio = picked
        if mode == "audio":
            text = ids.modality_pad

        # Append.
        history.append((text, audio))
        new_rows.append((text, audio))
        modes.append(mode)

        # Stop, on the text value alone. The stopping row stays.
        if text in ids.stops:
            return Trace(new_rows, modes, "stop")

    return Trace(new_rows, modes, "length")
