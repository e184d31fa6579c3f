"""The step of many streams: its Triton form, its padding, and its precision."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mosslive.codec import flow_step
from mosslive.codec.flow_pages import PageForm
from mosslive.codec.flow_stream import FlowStream, StreamSettings
from mosslive.codec.graph_sets import BUCKETS
from mosslive.kernels.arithmetic import arithmetic
from mosslive.kernels.dispatch import TORCH_ONLY, TRITON_ONLY
from mosslive.kernels.flow_chunks import ZERO_PAGE
from tests.codec.flow_models import error, small_codes, small_flow, small_voice

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def moved(stream: FlowStream, replies: int) -> Tensor:
    """Two steps of several replies, the second at different positions, and an end of one."""
    opened = stream.open(small_voice(8, 1))
    states = [opened.fork() for _ in range(replies)]
    codes = [small_codes(20, seed) for seed in range(replies)]
    mels = stream.step(states[:1], [codes[0][:7]])
    mels += stream.step(states, [codes[0][4:11]] + [row[:7] for row in codes[1:]])
    mels.append(stream.finish(states[0], codes[0][8:13], "cached"))
    return torch.cat(mels, 1)


@pytest.mark.parametrize("guidance", [0.7, 0.0])
def test_triton_step_equals_the_definitions(guidance: float) -> None:
    """Codes to mel through all kernels at once, in two runs and in one: one chunk of one code,
    since each program of a kernel takes the interpreter milliseconds."""
    settings, mels = StreamSettings(1, pool_seconds=8), []
    for device, dispatch in (("cpu", TORCH_ONLY), (DEVICE, TRITON_ONLY)):
        flow = copy.deepcopy(small_flow(1, guidance=guidance)).to(device)
        stream = FlowStream(flow, settings, dispatch)
        with arithmetic("fp32"):
            state = stream.open(small_voice(0, 1)).fork()
            mels += stream.step([state], [[1, 2, 3, 4]])
    assert mels[0].shape == (3, 4)
    assert error(mels[1].cpu(), mels[0]) < 1e-4


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("window", [None, 9])
def test_recorded_step_equals_the_definitions(window: int | None) -> None:
    """On a GPU a step is a graph, replayed for other streams at other positions."""
    settings, flow = StreamSettings(4, window, pool_seconds=8), small_flow()
    wanted = moved(FlowStream(flow, settings), 3)
    try:
        assert error(moved(FlowStream(flow.to("cuda"), settings), 3).cpu(), wanted) < 1e-4
    finally:
        flow.to("cpu")


@pytest.mark.parametrize("window", [None, 9])
def test_a_step_by_rows_of_voices_equals_the_plain_one(window: int | None) -> None:
    """The form that is recorded on a GPU takes speaker and prompt mel by their rows, writes frames
    to fixed memory and pads; the mel is the same, and rows are free when their states are gone."""
    settings, flow = StreamSettings(4, window, pool_seconds=8, trace_cpu_steps=False), small_flow()
    stream = FlowStream(flow, settings, recorded=True)
    stream._step._columns = 8
    wanted = moved(FlowStream(flow, settings), 3)
    assert error(moved(stream, 3), wanted) < 1e-6
    voices = stream._step.voices
    assert voices is not None
    assert len(voices.free) == len(voices.speakers) - 1
    assert not voices.speakers[0].any()
    assert not voices.known[0].any()


def test_padding_changes_nothing() -> None:
    """A recorded step is made for a few sizes: streams that are not there write to the scratch page
    alone, and the others get what they would get without them."""
    flow, frames = small_flow(), 16
    stream = FlowStream(flow, StreamSettings(4, pool_seconds=8))
    state = stream.open(small_voice(8, 2)).fork()
    wanted = stream.step([state], [small_codes(7, 1)])[0]
    step, store = stream._step, stream._step._pages
    before = [layer.clone() for layer in (*store.layers, store.tails)]
    # The same chunk once more, now with padding.
    pages = state.conformer.held, state.estimator.held
    chunk = flow_step.ChunkInput(
        small_codes(7, 1), 2, *pages, state.speaker, state.prompt_feat[2 * frames :]
    )
    numbers = torch.from_numpy(step._numbers([chunk], 4, columns=3))
    speaker = torch.nn.functional.pad(state.speaker[None], (0, 0, 0, 3))
    mel = step._compute(numbers, speaker, torch.zeros(4, frames, 3), *step._memory)
    assert error(mel[0], wanted) < 1e-5
    after = [*store.layers, store.tails]
    for old, new in zip(before, after, strict=True):
        pages_axis = 1 if new.dim() == 6 else 0
        index = torch.tensor([ZERO_PAGE, *state.estimator.held])
        old, new = old.index_select(pages_axis, index), new.index_select(pages_axis, index)
        torch.testing.assert_close(new, old, atol=1e-5, rtol=1e-4)
        assert not new.select(pages_axis, 0).any(), "page 0 stays zero"


def test_more_streams_than_the_largest_bucket() -> None:
    """They go in several batches and come back in order."""
    flow = small_flow(steps=1)
    stream = FlowStream(flow, StreamSettings(4))
    opened, count = stream.open(small_voice(0, 0)), BUCKETS[-1] + 3
    states = [opened.fork() for _ in range(count)]
    codes = [small_codes(7, seed) for seed in range(count)]
    mels = stream.step(states, codes)
    for row in (0, BUCKETS[-1] - 1, BUCKETS[-1], count - 1):
        (alone,) = stream.step([opened.fork()], [codes[row]])
        assert error(mels[row], alone) < 1e-5


@pytest.mark.parametrize(("dtype", "least"), [(torch.float16, 0.9999), (torch.bfloat16, 0.999)])
def test_halves(dtype: torch.dtype, least: float) -> None:
    """Only products and pages are in halves: the mel stays near float32's."""
    flow = small_flow()
    wanted = moved(FlowStream(flow, StreamSettings(4, pool_seconds=8)), 2)
    stream = FlowStream(flow, StreamSettings(4, pool_seconds=8, dtype=dtype))
    assert {layer.dtype for layer in stream._step._pages.layers} == {dtype}
    found = moved(stream, 2)
    assert found.dtype == torch.float32
    assert float(torch.cosine_similarity(found.flatten(), wanted.flatten(), 0)) > least


def test_a_page_is_as_large_as_documented() -> None:
    """Published sizes: 2.3 MB a frame in halves, tails included; the pool is what its seconds
    say."""
    assert StreamSettings(5, pool_seconds=120, dtype=torch.bfloat16).pages == 300
    tails = 2 * (29 * 256 + 320 + 512)
    form = PageForm(10 * 56, 2, 8, 20, 64, 10 * tails, torch.bfloat16)
    assert form.page_bytes == 20 * 2 * 1_146_880 + 4 * 2 * 10 * tails


def test_a_stream_alone_runs_without_python_and_the_same() -> None:
    """On a CPU one stream's step is recorded once. The recording holds for any length of
    the past and any pages, and writes what later chunks read."""
    flow, settings = small_flow(), StreamSettings(4, pool_seconds=8)
    recorded, plain = FlowStream(flow, settings), replace(settings, trace_cpu_steps=False)
    torch.testing.assert_close(moved(recorded, 4), moved(FlowStream(flow, plain), 4))
    assert recorded._step._trace is not None
