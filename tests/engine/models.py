"""Shared by the engine's tests: prompts, settings, a model that changes its mode, and answers.

Expected answers have two sources: `recomputed` runs the reference loop over a full forward pass per
row, `alone` runs a request by itself in a pool of its own.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mosslive import LanguageModel, Sampling, Turn, load_lm
from mosslive.cache import PagePool, PageTable
from mosslive.checkpoint.layout import AUDIO_HEAD, TEXT_HEAD
from mosslive.engine.request import Stop
from mosslive.engine.runner import Runner
from mosslive.kernels import PagedBatch, uniform
from mosslive.model import Decoder
from mosslive.rows import CHANNELS, Channel, ReplyKind, Row, first_mode, next_mode
from tests.reference.straight_loop import Ids, Settings, Trace, straight_loop

SYSTEM = Turn("system", text="You are a helpful voice assistant.")
SPOKEN = Turn("user", codes=[64, 31, 7, 499, 9, 0, 64, 64, 77])  # 64 is nano's audio pad as well
PROMPTS: dict[str, tuple[list[Turn], ReplyKind]] = {
    "text to speech": ([SYSTEM, Turn("user", text="Where is it?")], "speech"),
    "speech to text": ([SYSTEM, SPOKEN], "text"),
    "mixed to speech": ([SYSTEM, SPOKEN, Turn("assistant", text="Hi."), SPOKEN], "speech"),
    "mixed to text": ([SYSTEM, SPOKEN, Turn("assistant", codes=[5] * 20), SPOKEN], "text"),
    "short": ([Turn("user", text="a")], "text"),
}
SETTINGS = {
    "greedy": Sampling(greedy=True, max_new=32),
    "greedy, penalty": Sampling(greedy=True, repetition_penalty=1.3, max_new=32),
    "plain": Sampling(seed=2**63 + 5, min_new=6, max_new=32),
    "filtered": Sampling(
        temperature=0.8, top_k=40, top_p=0.9, repetition_penalty=1.1, seed=11, max_new=32
    ),
    "hot, pad": Sampling(
        temperature=1.3,
        top_k=25,
        top_p=0.8,
        repetition_penalty=1.2,
        seed=3,
        max_new=32,
        ignored_audio="pad",
    ),
}


class Answer(NamedTuple):
    rows: list[Row]
    stop: Stop | None


Alone = Callable[[str, Sampling], Answer]


# The test files make module fixtures of these functions; their parameters are fixtures.


def switching_lm(
    nano_folder: Path, tmp_path_factory: pytest.TempPathFactory, device: str = "cpu"
) -> LanguageModel:
    """The nano model with a few rows of its heads made loud, so that it changes between writing
    and speaking every few rows, and sometimes ends its turn."""
    config = load_lm(nano_folder).config
    loud = {
        TEXT_HEAD: {config.sosp_token_id: 4.0, config.eos_token_id: 1.7},
        AUDIO_HEAD: {config.eosp_token_id: 4.0},
    }
    folder = shutil.copytree(nano_folder, tmp_path_factory.mktemp("switching") / "lm")
    for path in folder.glob("*.safetensors"):
        tensors = load_file(path)
        for name in tensors.keys() & loud.keys():
            for row, factor in loud[name].items():
                tensors[name][row] *= factor
        save_file(tensors, path, {"format": "pt"})
    return load_lm(folder, device)


def alone_of(switching: LanguageModel) -> Alone:
    """Returns (prompt, settings) → the model's answer to a single request; computed once each."""

    @cache
    def alone(name: str, sampling: Sampling) -> Answer:
        return answer(fresh(switching), prompt_rows(switching, name), sampling)

    return alone


def fresh(
    lm: LanguageModel,
    *,
    pages: int = 64,
    page_size: int = 16,
    chunk: int = 512,
    positions: int | None = None,
) -> LanguageModel:
    """The same weights with a decoder and a pool of their own. The storage is filled with NaN, so
    that a read of a row that was never computed shows at once."""
    config = (
        lm.config if positions is None else replace(lm.config, max_position_embeddings=positions)
    )
    decoder = Decoder(config, lm.runner.decoder.weights)
    made = LanguageModel(Runner(decoder, PagePool(pages, page_size), chunk), lm.tokenizer)
    for tensor in storage_tensors(made.runner):
        tensor.fill_(float("nan"))
    return made


def storage_tensors(runner: Runner) -> list[Tensor]:
    """Everything that lives in pages, [pages, page_size, ...] each: trunk, both tails, outputs."""
    storage = runner.storage
    layers = [*storage.trunk, *(layer for tail in CHANNELS for layer in storage.tails[tail])]
    return [storage.hidden, *(tensor for layer in layers for tensor in layer)]


def stored_bits(runner: Runner, table: PageTable) -> list[Tensor]:
    """The page contents of each row of a table, as bits, because NaN differs from itself."""
    slots = torch.tensor([table.slot(position) for position in range(len(table))])
    return [
        tensor.flatten(0, 1)[slots].view(torch.int32).clone() for tensor in storage_tensors(runner)
    ]


def prompt_rows(lm: LanguageModel, name: str) -> list[Row]:
    turns, reply = PROMPTS[name]
    return lm.format.prompt(turns, reply)


def recomputed(lm: LanguageModel, prompt: list[Row], sampling: Sampling) -> Trace:
    """The reference loop, over a forward pass of the whole history for every row."""
    ids = lm.ids
    padded = sampling.ignored_audio == "pad"

    def logits_of(rows: list[Row]) -> tuple[Any, Any]:
        text, audio = (logits[-1].numpy() for logits in lm.forward(rows))
        mode = first_mode(prompt[-1], ids)
        for row in rows[len(prompt) - 1 :]:
            mode = next_mode(mode, row, ids)
        if padded and mode == "text":  # the reference has no other way to choose the pad
            audio = np.where(np.arange(len(audio)) == ids.audio_pad, 0, -np.inf)
        return text, audio

    names = Settings.__dataclass_fields__
    return straight_loop(
        logits_of,
        prompt,
        Ids(ids.modality_pad, ids.sosp, ids.eosp, ids.audio_pad, tuple(ids.stops)),
        Settings(**{name: getattr(sampling, name) for name in names}),
        lambda step, channel: uniform(sampling.seed, step, channel),
    )


def answer(lm: LanguageModel, prompt: list[Row], sampling: Sampling, **options: Any) -> Answer:
    generation = lm.generate(prompt, sampling, **options)
    return Answer(list(generation), generation.stop)


def watch(monkeypatch: pytest.MonkeyPatch, decoder: Decoder) -> list[tuple[str, list[int]]]:
    """Returns a list that grows by (trunk or tail, slots written) with every decoder pass."""
    passes: list[tuple[str, list[int]]] = []
    trunk, tail = decoder.trunk, decoder.tail

    def seen_trunk(text: Tensor, audio: Tensor, pages: Any, batch: PagedBatch) -> Tensor:
        passes.append(("trunk", batch.slots.tolist()))
        return trunk(text, audio, pages, batch)

    def seen_tail(
        name: Channel, hidden: Tensor, pages: Any, batch: PagedBatch, wanted: Tensor | None = None
    ) -> Tensor:
        passes.append((name, batch.slots.tolist()))
        return tail(name, hidden, pages, batch, wanted)

    monkeypatch.setattr(decoder, "trunk", seen_trunk)
    monkeypatch.setattr(decoder, "tail", seen_tail)
    return passes


def rows_run(passes: list[tuple[str, list[int]]], name: str) -> int:
    return sum(len(slots) for which, slots in passes if which == name)


def break_at(
    monkeypatch: pytest.MonkeyPatch,
    decoder: Decoder,
    method: str,
    call: int,
    error: type[BaseException] = RuntimeError,
) -> None:
    """Makes the nth call of a decoder's method fail after it has written NaN to the pages."""
    works = getattr(decoder, method)
    calls = count(1)

    def breaks(*given: Any) -> Any:
        result = works(*given)
        if next(calls) != call:
            return result
        if method != "logits":
            pages, batch = given[2:4]
            for tensor in (tensor for layer in pages for tensor in layer):
                tensor.flatten(0, 1)[batch.slots] = float("nan")
        raise error(f"{method} broke at call {call}")

    monkeypatch.setattr(decoder, method, breaks)


def all_free(lm: LanguageModel) -> bool:
    return lm.pool.free == lm.pool.total and not any(lm.pool.references)
