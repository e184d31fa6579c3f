"""Measures how well held-out speech survives the codec, without a listener.

Phone errors of the codes by voice, and the distance of the mel. Knows the trained codec, not how it
was trained. Invariant: uses nothing that was trained on.
"""

from collections import defaultdict

import numpy as np
import torch
from torch.nn import functional as F

from mosslive.kernels.arithmetic import arithmetic
from recipes.bundled.augment import features
from recipes.bundled.bank import Bank
from recipes.bundled.codec_model import MEL_SCALE, CodecModel
from recipes.bundled.exam.words import edits

_MOST_PER_VOICE = 20


@torch.no_grad()
@arithmetic("fp32")  # also turns off convolution benchmarks, which would repeat for every length
def judge_codec(model: CodecModel, bank: Bank, phone_names: list[str]) -> dict[str, float]:
    """Returns `mu` and `flow`: mean distance of the mel in units of its spread, before and after
    the flow; `phones <voice>`: errors per phone. A flow that leaves its noise in is 0.3 above
    `mu`."""
    number = {name: n + 1 for n, name in enumerate(phone_names)}
    chosen: dict[str, list[int]] = defaultdict(list)
    for index, utterance in enumerate(bank.utterances):
        if utterance.split == "heldout" and len(chosen[utterance.voice]) < _MOST_PER_VOICE:
            chosen[utterance.voice].append(index)
    found: dict[str, float] = {}
    distances: list[list[float]] = []
    for voice, members in sorted(chosen.items()):
        wrong = total = 0
        for index in members:
            begin, count = int(bank.first[index]), int(bank.count[index])
            wave = bank.heard[begin : begin + count].flatten()[None].float() / 32768
            heard = model.hear(features(wave))
            vectors = model.quantiser.codebook[model.quantiser.nearest(heard.states)]
            said = _greedy(model.phone_logits(vectors)[0].argmax(-1).tolist())
            wanted = [number[p] for p in bank.utterances[index].phones]
            wrong += edits(said, wanted)
            total += len(wanted)
            if bank.utterances[index].role == "assistant":
                mu = model.mu(vectors, 5, finalize=True)[0]
                mel = bank.mel[begin : begin + count].flatten(0, 1).T.float()
                spoken = model.speak(vectors, 5)[0]
                apart = [F.l1_loss(each, mel).item() / MEL_SCALE for each in (mu, spoken)]
                distances.append(apart)
        found[f"phones {voice}"] = wrong / max(1, total)
    if not distances:
        return found
    mu_mean, flow_mean = np.mean(distances, 0).tolist()
    return found | {"mu": mu_mean, "flow": flow_mean}


def _greedy(path: list[int]) -> list[int]:
    """Greedy CTC decoding: merges repetitions and drops blanks (0)."""
    return [p for place, p in enumerate(path) if p and (not place or p != path[place - 1])]
