"""The codec benchmark prints no unverified time, and its graphs equal the plain functions."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from mosslive.bench.codec import measure as bench
from mosslive.bench.codec import precompile
from mosslive.bench.codec.check import Row, compare, timed
from mosslive.bench.codec.encoder import CPU_STREAMS, _Run, _sound, _use_as_codes, encoder_rows
from mosslive.bench.codec.flow import flow_rows
from mosslive.bench.codec.kernel_share import take_share
from mosslive.bench.codec.networks import NetworkPair, normal
from mosslive.bench.codec.precompile import CompileJob, compiling, run_job
from mosslive.bench.verified import NotVerified
from mosslive.cli.app import app
from mosslive.codec.encoder import Encoder
from mosslive.codec.encoder_pages import page_bytes, pages_for
from mosslive.errors import MossliveError
from mosslive.kernels.arithmetic import arithmetic
from mosslive.kernels.graph import Graphed

_NANO = NetworkPair("nano", "cpu")


def _row(**changed: Any) -> Row:
    fields: dict[str, Any] = {"error": 0.0, "cosine": 1.0, "precision": "fp32"} | changed
    return Row("part", "what", streams=2, form="eager", sound_ms=80.0, **fields)


def test_last_line_is_json_with_its_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line is JSON with the conditions; an untimed row has no real-time factor."""
    rows = (_row(median_ms=4.0, p10_ms=3.0, p90_ms=5.0, goal_ms=3.5), _row(precision="bf16"))
    for part in ("vocoder_rows", "flow_rows"):
        monkeypatch.setattr(bench, part, lambda *_: iter(()))
    monkeypatch.setattr(bench, "encoder_rows", lambda *_: iter(rows))
    result = CliRunner().invoke(app, ["bench", "codec", "--size", "nano"])
    assert result.exit_code == 0, result.output
    last = json.loads(result.stdout.splitlines()[-1])
    assert last["size"] == "nano"
    assert last["torch_version"] == torch.__version__
    assert "TF32 off" in last["conditions"]["fp32"]
    assert [row["real_time"] for row in last["rows"]] == [40.0, None]


def test_encoder_rows_are_verified_and_complete() -> None:
    """The batch is timed in two precisions: steps after two contexts, the end of a turn. Its codes
    are those of the CPU's encoder."""
    rows = list(encoder_rows(_NANO, repeats=3))
    (segment,) = [row for row in rows if row.same_codes is None]
    assert segment.sound_ms == 30_000
    steps = [(n, f"80 ms step, {s} s of context") for n in CPU_STREAMS for s in (5, 25)]
    batched = [row for row in rows if row is not segment]
    assert [(row.precision, row.streams, row.what) for row in batched] == [
        (precision, *row)
        for precision in ("fp32", "fp16")
        for row in (*steps, (1, "end of a turn of 5 s"))
    ]
    assert all(row.same_codes == 1 for row in batched if row.precision == "fp32")
    assert all(row.median_ms and row.error < 1e-4 for row in rows)


def test_encoder_codes_tell_sounds_apart() -> None:
    """The states of a sound are those behind the codes of `encode`, and codes hardly repeat: a
    wrong block, turn or past would show."""
    cpu, _ = _NANO.encoder()
    sounds = [_sound(cpu, seed, 64_000) for seed in range(2)]
    _use_as_codes(sounds, cpu)
    codes = [cpu.encode(sound.wave).tolist() for sound in sounds]
    assert codes == [cpu.quantise(sound.states).tolist() for sound in sounds]
    assert len({code for own in codes for code in own}) == 100


def test_turns_that_do_not_fit_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoder is timed with as many turns as have pages for whole segments."""
    cpu, device = _NANO.encoder()
    each = pages_for(device, 1.0) * page_bytes(device)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (100 * each, 128 * each))
    assert _Run(cpu, device, "cuda", "fp32", 3).fitting() == (1, 8, 64)


@pytest.mark.usefixtures("untraced")
def test_flow_rows_repeat_the_same_chunk() -> None:
    """Every call renders the same chunk: cached, prefix and batched forms give the CPU's mel."""
    fp32 = list(islice(flow_rows(_NANO, 3, streams=(1, 2)), 3))  # half precision follows
    assert [(row.streams, row.what) for row in fp32] == [
        (1, "5-code chunk, prefix"),
        (1, "5-code chunk, cached"),
        (2, "5-code chunk, cached"),
    ]
    for row in fp32:
        assert (row.precision, row.error < 1e-4) == ("fp32", True), row
        assert row.wave_cosine is not None
        assert row.wave_cosine > 0.9999
        assert row.median_ms


def test_vocoder_forms_give_the_same_samples() -> None:
    """Window and stream give the offline samples of their frames."""
    from mosslive.bench.codec.vocoder import _Run

    cpu, device = _NANO.bigvgan()
    mel = normal(3, 1, cpu.config.num_mels, 150)
    run = _Run(device, mel, cpu(mel)[:, : -38 * cpu.hop], "fp32", "cpu")
    (eager, graph), stream = run.window_rows("window", 3), run.stream_row(2, 3)
    assert [row.streams for row in (eager, graph, stream)] == [1, 1, 2]
    for row in (eager, graph, stream):
        assert row.error < 1e-4, row
        assert row.median_ms
        assert row.sound_ms == pytest.approx(1e4 * cpu.hop / cpu.sample_rate)


def test_a_wrong_output_gets_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """An output that differs from the CPU's raises `NotVerified`."""
    honest = Encoder.blocks

    def misplaced(self: Encoder, frames: Tensor, position: Tensor, pasts: Any) -> Tensor:
        return honest(self, frames, position.clamp(max=40), pasts)

    monkeypatch.setattr(Encoder, "blocks", misplaced)
    with pytest.raises(NotVerified, match="differs from the CPU's"):
        next(encoder_rows(_NANO, repeats=3))


def test_a_low_precision_that_is_too_far_off_is_not_timed() -> None:
    """A low precision that is too far off keeps its cosine, gets no time and is not run again."""
    row = timed(_row(precision="bf16", cosine=0.998), pytest.fail, "cpu", 3)
    assert row.median_ms is None
    assert timed(_row(precision="fp16", same_codes=0.97), pytest.fail, "cpu", 3).median_ms is None
    for wrong in (_row(error=0.01), _row(same_codes=0.97)):
        with pytest.raises(NotVerified):
            timed(wrong, pytest.fail, "cpu", 3)


@pytest.mark.parametrize("bad", [torch.ones(4), torch.tensor([0.0, torch.nan, 1.0, 2.0])])
def test_constant_or_not_finite_is_refused(bad: Tensor) -> None:
    """Constant or non-finite outputs fail in every precision."""
    with pytest.raises(NotVerified, match="constant or not finite"):
        compare("x", bad, torch.arange(4.0))


def test_arithmetic_settings_are_restored() -> None:
    """`arithmetic` restores the caller's settings, also after an error."""
    cudnn = torch.backends.cudnn
    before = cudnn.allow_tf32, cudnn.benchmark, torch.get_float32_matmul_precision()
    with arithmetic("fp32"):
        assert not cudnn.allow_tf32
        assert torch.get_float32_matmul_precision() == "highest"
    with pytest.raises(KeyError), arithmetic("tf32"):
        raise KeyError
    assert before == (cudnn.allow_tf32, cudnn.benchmark, torch.get_float32_matmul_precision())


def test_a_graph_on_the_cpu_is_the_plain_function() -> None:
    """On a CPU `Graphed` computes the result of each new input."""
    double: Callable[[Tensor], Tensor] = Graphed(lambda x: 2 * x, torch.ones(3))
    assert double(torch.tensor([1.0, 2.0, 3.0])).tolist() == [2, 4, 6]


@pytest.mark.parametrize("arguments", [("huge", "cpu"), ("nano", "tpu")])
def test_unknown_sizes_and_devices_are_refused(arguments: tuple[str, str]) -> None:
    """An unknown size or device fails with a sentence that names the allowed values."""
    with pytest.raises(MossliveError, match=r"nano|cuda"):
        bench.measure_codec(*arguments, repeats=3)


def test_parts_are_chosen_by_name_and_seen_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """`seen` gets each row of the chosen parts; an unknown part fails with the known ones."""
    for part in ("encoder", "vocoder", "flow"):
        made = replace(_row(), part=part)
        monkeypatch.setattr(bench, f"{part}_rows", lambda *_, made=made: iter([made, made]))
    seen: list[Row] = []
    result = bench.measure_codec("nano", "cpu", 3, parts=("encoder", "flow"), seen=seen.append)
    assert [row.part for row in result.rows] == ["encoder"] * 2 + ["flow"] * 2
    assert tuple(seen) == result.rows
    with pytest.raises(MossliveError, match="encoder, vocoder, flow"):
        bench.measure_codec("nano", "cpu", 3, parts=("hift",))


# Compiling beforehand


def test_shares_are_disjoint_and_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kernel runs once, in exactly one of the processes; every call returns results of the
    right shape."""
    from mosslive.kernels.gpu.kernel_set import TritonKernelSet as Kernels

    ran: list[int] = []
    for share in range(3):
        for name in ("conv1d", "conv1d_snake", "snake", "anti_aliased_snake"):
            note: Callable[..., None] = lambda x, *_, **__: ran.append(x.shape[1])  # noqa: E731
            monkeypatch.setattr(Kernels, name, staticmethod(note))
        take_share(share, 3)
        for channels in (8, 9, 10, 11, 8):
            x, weight, one = torch.zeros(2, channels, 6), torch.zeros(4, channels, 3), torch.ones(4)
            y = Kernels.conv1d(x, weight, one, padding=1, addends=[torch.zeros(2, 4, 6)])
            bent = Kernels.conv1d_snake(x, weight, None, one)
            assert [y.shape, *(each.shape for each in bent)] == [(2, 4, 6), (2, 4, 4), (2, 4, 4)]
            assert Kernels.snake(x, torch.ones(channels)).shape == x.shape
    assert sorted(ran) == sorted(3 * [8, 9, 10, 11])


@pytest.mark.parametrize("network", ["encoder", "bigvgan", "hift", "flow"])
def test_every_network_can_be_compiled_beforehand(network: str) -> None:
    """Every compile job runs without an error on the CPU; in use a failing process is silent."""
    job = CompileJob(network, "fp32", (1, 2), (9,), pushed=80)
    run_job("nano", job, "meta" if network == "bigvgan" else "cpu")


def test_no_compiling_process_outlives_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile processes end before anything is timed: hanging ones are killed after the limit, also
    when the benchmark fails meanwhile."""
    started: list[subprocess.Popen[bytes]] = []

    class Hanging(subprocess.Popen[bytes]):
        def __init__(self, *_: Any, **__: Any) -> None:
            super().__init__([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Hanging)
    monkeypatch.setattr(precompile, "_MOST_SECONDS", 0.1)
    jobs = CompileJob("flow", "fp32", (1,)).split(2)
    with compiling("nano", "cuda", jobs):
        assert len(started) == 2
    with pytest.raises(NotVerified), compiling("nano", "cuda", jobs):
        raise NotVerified
    assert len(started) == 4
    assert all(process.returncode for process in started)
    with compiling("nano", "cpu", jobs):
        assert len(started) == 4
