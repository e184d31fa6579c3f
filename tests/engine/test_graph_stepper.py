"""`GraphStepper` makes the rows of `PlainStepper`: graphs on a GPU, else Triton's interpreter."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mosslive import LanguageModel, Sampling
from mosslive.cache import PagePool, PageTable
from mosslive.engine.graph_runner import GraphRunner
from mosslive.engine.graph_stepper import GraphStepper
from mosslive.engine.request import Request
from mosslive.engine.runner import Runner
from mosslive.engine.stepper import PlainStepper, Stepper
from mosslive.kernels import NonFiniteLogits
from mosslive.kernels.dispatch import TORCH, triton_kernels
from mosslive.model import Decoder, DecoderWeights
from mosslive.rows import Row
from tests.engine.models import prompt_rows, storage_tensors, switching_lm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# The interpreter needs seconds for a step; a GPU can do the whole reply.
ROWS = 40 if DEVICE == "cuda" else 3


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduces the programs per launch, because the interpreter's time grows with their number. GPU
    launches have hundreds, most without work here. Each kernel has its own tests of this."""
    if DEVICE == "cuda":
        return
    triton_kernels()  # imports them
    # By their full names: in `gpu` a function of the same name hides a module.
    attention = sys.modules["mosslive.kernels.gpu.paged_attention"]
    step = sys.modules["mosslive.kernels.gpu.attend"]
    product = sys.modules["mosslive.kernels.gpu.one_row"]
    shape, tile = attention._shape, product._tile

    def few_splits(requests: int, context_rows: int, *heads: int) -> Any:
        return shape(requests, context_rows, *heads)._replace(splits=2 if context_rows == 1 else 1)

    monkeypatch.setattr(attention, "_shape", few_splits)
    monkeypatch.setattr(step, "_SPLITS", 2)
    monkeypatch.setattr(product, "_tile", lambda *size: (128, *tile(*size)[1:]))


@pytest.fixture(scope="module")
def switching(nano_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    lm = switching_lm(nano_folder, tmp_path_factory, device=DEVICE)
    if DEVICE == "cuda":
        return lm
    # One layer of each kind keeps the interpreter fast; other tests cover the layers.
    weights = lm.runner.decoder.weights
    tails = {c: replace(tail, layers=tail.layers[:1]) for c, tail in weights.tails.items()}
    few = DecoderWeights(weights.trunk[:1], tails)
    config = replace(lm.config, num_hidden_layers=2, num_shared_layers=1, num_modality_layers=1)
    return LanguageModel(Runner(Decoder(config, few), PagePool(1, 16), 512), lm.tokenizer)


def plain(lm: LanguageModel) -> PlainStepper:
    decoder = Decoder(lm.config, lm.runner.decoder.weights, TORCH)
    return PlainStepper(Runner(decoder, PagePool(64, 16), 512))


def graphed(lm: LanguageModel, most: int = 4) -> GraphStepper:
    decoder = Decoder(lm.config, lm.runner.decoder.weights, triton_kernels())
    stepper = GraphStepper(GraphRunner(decoder, PagePool(64, 16), 512), most)
    for tensor in (stepper.runner.storage.hidden, *stepper.runner.storage.trunk[0]):
        tensor.fill_(float("nan"))  # rows that were not computed must not be read
    stepper.record()
    return stepper


def open_request(
    stepper: Stepper, lm: LanguageModel, rows: list[Row], sampling: Sampling
) -> Request:
    context_rows = lm.config.max_position_embeddings
    return Request(rows, sampling, lm.ids, PageTable(stepper.pool), context_rows)


def replies(
    stepper: Stepper, lm: LanguageModel, wanted: list[tuple[str, Sampling]], arrivals: list[int]
) -> list[list[Row]]:
    """Runs requests; number n joins at step arrivals[n] and gets ROWS rows. All pages are freed."""
    requests = [open_request(stepper, lm, prompt_rows(lm, name), s) for name, s in wanted]
    for step in range(max(arrivals) + ROWS):
        now = [
            request
            for request, begin in zip(requests, arrivals, strict=True)
            if begin <= step < begin + ROWS and not request.stop
        ]
        for made in stepper.decode(now):
            assert not isinstance(made, Exception), made
    for request in requests:
        stepper.release(request)
        request.table.free()
    assert stepper.pool.free == stepper.pool.total
    return [request.new_rows for request in requests]


SAMPLED = Sampling(
    temperature=0.8, top_k=40, top_p=0.9, repetition_penalty=1.1, seed=2**63 + 7, max_new=100
)
GREEDY = Sampling(greedy=True, repetition_penalty=1.3, max_new=100, ignored_audio="pad")


def test_rows_equal_those_of_the_plain_stepper(switching: LanguageModel) -> None:
    """Mixed speech and text replies that start and end at different steps have the same rows."""
    wanted = [("text to speech", SAMPLED), ("speech to text", GREEDY), ("mixed to speech", GREEDY)]
    arrivals = [0, 0, 1]
    expected = replies(plain(switching), switching, wanted, arrivals)
    assert replies(graphed(switching), switching, wanted, arrivals) == expected


def test_a_fork_continues_from_rows_already_computed(switching: LanguageModel) -> None:
    """A reply may start on a table whose last row is through the trunk and both tails."""
    rows = prompt_rows(switching, "text to speech")
    sampling = Sampling(greedy=True, max_new=3)

    def forked(stepper: Stepper) -> list[list[Row]]:
        request = open_request(stepper, switching, rows, sampling)
        stepper.decode([request])
        twins = [request.table.fork() for _ in range(2)]
        context_rows = switching.config.max_position_embeddings
        others = [Request([], sampling, switching.ids, twin, context_rows) for twin in twins]
        stepper.decode(others)
        stepper.decode(others)
        for one in (request, *others):
            stepper.release(one)
            one.table.free()
        assert stepper.pool.free == stepper.pool.total
        return [one.new_rows for one in (request, *others)]

    assert forked(graphed(switching)) == forked(plain(switching))


def test_a_request_without_finite_logits_affects_no_other(
    switching: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request without finite logits gets an error, and the other requests of the batch get their
    rows."""
    stepper = graphed(switching)
    rows = prompt_rows(switching, "short")
    requests = [open_request(stepper, switching, rows, GREEDY) for _ in range(2)]
    good = stepper.decode(requests)[0]
    # The next step reads a poisoned key of the second request alone.
    second = requests[1].table
    storage = stepper.runner.storage.trunk[0]
    storage.k[second.pages[-1], (len(second) - 1) % 16] = float("nan")
    made = stepper.decode(requests)
    assert not isinstance(good, Exception)
    assert not isinstance(made[0], Exception)
    assert isinstance(made[1], NonFiniteLogits)


def test_a_prefill_that_fails_leaves_the_others_as_they_were(
    switching: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed call no pending row is in its page table, so the call can be repeated."""
    stepper = graphed(switching)
    rows = prompt_rows(switching, "short")
    one, many = (open_request(stepper, switching, some, GREEDY) for some in (rows[-1:], rows))

    def breaks(jobs: object) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(stepper._plain, "prefill", breaks)
    with pytest.raises(RuntimeError, match="no memory"):
        stepper.decode([one, many])
    assert (len(one.table), one.pending) == (0, rows[-1:])
    assert (len(many.table), many.pending) == (0, rows)
    assert stepper.pool.free == stepper.pool.total


def test_steps_of_padding_rows_write_to_no_page(switching: LanguageModel) -> None:
    """Recording runs steps of padding rows, which change no page in use."""
    stepper = graphed(switching)
    tensors = storage_tensors(stepper.runner)
    for tensor in tensors:
        tensor.fill_(7.0)
    for name in ("trunk", "text", "audio"):
        stepper.graphs.run(name, 1)
    for tensor in tensors:
        assert (tensor[:-1] == 7.0).all()
