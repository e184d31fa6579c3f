"""An endless feed of examples: processes make new sets while one is in use.

Each set has its own seed, and so its own wordings, voices and mixture. Training takes the next set
when it is ready and otherwise reuses the current one. Knows files and processes, not the model.
Invariant: a maker that fails costs variety, never the run.
"""

import itertools
import json
import multiprocessing
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mosslive.rows import RowIds
from recipes.bundled import grammar
from recipes.bundled.budget import save_whole
from recipes.bundled.corpus import Corpus, Split
from recipes.bundled.encode_bank import load_spoken
from recipes.bundled.lm_batch import Batch, Batches, Capacities, Mishearing
from recipes.bundled.lm_rows import Examples, RowBuilder, Tasks, build_examples, written_dialogues
from recipes.bundled.processes import leave_with_parent
from recipes.bundled.vocabulary import load_tokenizer

_LOOK_STEPS = 200  # a little more than once through a set
_PATIENCE_S = 180.0  # for the first set
_NAP_S = 0.2
_LEAVE_S = 5.0  # for a maker that is to stop
_ARRAYS = ("text", "audio", "kind", "code", "meant", "first", "count")


@dataclass(frozen=True)
class Sets:
    """The sources of sets. Picklable: every maker gets a copy."""

    corpus: Path
    spoken: Path
    ids: RowIds
    examples: int
    typed: int
    seed: int


class Maker:
    def __init__(self, what: Sets) -> None:
        self.what = what
        self.corpus, self.spoken = Corpus(what.corpus), load_spoken(what.spoken)
        self._builder = RowBuilder(self.corpus, self.spoken, load_tokenizer(), what.ids, what.seed)

    def make(self, number: int) -> Examples:
        """Makes a set; the same number gives the same set."""
        what = self.what
        self._builder.host = np.random.default_rng((what.seed, number))
        talks = grammar.typed(what.typed, what.seed + 1000 * number)
        typed = written_dialogues(talks, self.corpus)
        return build_examples(self._builder, Tasks(), what.examples, "train", typed)

    def held_out(self, count: int) -> Examples:
        split: Split = "heldout"
        return build_examples(self._builder, Tasks(), count, split)


class Feed:
    """Batches of the newest set."""

    def __init__(
        self, what: Sets, folder: Path, device: torch.device, rows: int, makers: int
    ) -> None:
        """`makers`: number of processes; with 0 there is only the first set, made in this
        process."""
        self.device = device
        self._what, self._folder, self._rows = what, folder, rows
        self._steps = 0
        self.taken = 0  # sets so far
        self._batches: Batches | None = None
        self._codes: Tensor | None = None
        self._capacities: Capacities = {}
        for stale in folder.glob("examples-*.pt"):
            stale.unlink()
        spawn = multiprocessing.get_context("spawn")
        self._makers = [
            spawn.Process(target=_make_sets, args=(what, folder, n, makers), daemon=True)
            for n in range(makers)
        ]
        for each in self._makers:
            each.start()

    def next(self, noise: Mishearing | None) -> Batch:
        if self._batches is None:
            self._batches = self._of(self._first())
        elif self._steps % _LOOK_STEPS == 0 and (newer := self._newer()) is not None:
            self._batches = self._of(newer)
        self._steps += 1
        return self._batches.next(noise)

    def close(self) -> None:
        for each in self._makers:
            each.terminate()
        for each in self._makers:
            each.join(_LEAVE_S)
            each.kill()

    def _of(self, examples: Examples) -> Batches:
        if self._codes is None:  # once: of hundreds of hours they are hundreds of megabytes
            self._codes = load_spoken(self._what.spoken).on(self.device)
        seed = self._what.seed + self.taken
        self.taken += 1
        ids = self._what.ids
        return Batches(examples, self._codes, ids, self.device, self._rows, seed, self._capacities)

    def _first(self) -> Examples:
        until = time.monotonic() + _PATIENCE_S
        while any(each.is_alive() for each in self._makers) and time.monotonic() < until:
            if (found := self._newer()) is not None:
                return found
            time.sleep(_NAP_S)
        if self._makers:
            print(json.dumps({"examples": "no maker made any; made here"}), flush=True)
        return Maker(self._what).make(0)

    def _newer(self) -> Examples | None:
        waiting = sorted(self._folder.glob("examples-*.pt"), key=lambda path: path.stat().st_mtime)
        if not waiting:
            return None
        found = load_examples(waiting[0])
        waiting[0].unlink()
        return found


def save_examples(examples: Examples, path: Path) -> None:
    content: dict[str, Any] = {name: torch.from_numpy(getattr(examples, name)) for name in _ARRAYS}
    save_whole(content | {"names": examples.names, "groups": examples.groups}, path)


def load_examples(path: Path) -> Examples:
    held = torch.load(path, weights_only=True)
    return Examples(**(held | {name: held[name].numpy() for name in _ARRAYS}))


def _make_sets(what: Sets, folder: Path, first: int, step: int) -> None:
    leave_with_parent()
    torch.set_num_threads(1)
    maker = Maker(what)
    last: Path | None = None
    for number in itertools.count(first, step):
        made = maker.make(number)
        while (
            last is not None and last.exists()
        ):  # one set in the making and one waiting are enough
            time.sleep(_NAP_S)
        last = folder / f"examples-{number}.pt"
        save_examples(made, last)
