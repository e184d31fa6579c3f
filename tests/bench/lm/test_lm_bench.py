"""The language model's benchmarks print no unverified time and count bytes correctly."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from mosslive.bench.lm import decode, engine, load, prefill
from mosslive.bench.lm.bytes import cache_bytes, pass_flops, weight_bytes
from mosslive.bench.lm.check import Closeness, Expected, check_codes, compare, verify_logits
from mosslive.bench.lm.engine_watch import StepTime, full_steps
from mosslive.bench.lm.folder import write_random_engine
from mosslive.bench.lm.lazy import check_lazy
from mosslive.bench.lm.load_once import load_once
from mosslive.bench.lm.streams import check_steady
from mosslive.bench.lm.weights import as_precision, random_config, random_weights
from mosslive.bench.report import BenchResult, BenchRow, conditions_of, text_report
from mosslive.bench.report_html import html_page
from mosslive.bench.subject import Subject, numbers
from mosslive.bench.timing import Times
from mosslive.bench.verified import NotVerified
from mosslive.checkpoint import CheckpointError
from mosslive.cli.app import app
from mosslive.config import ConfigError, ModelConfig
from mosslive.engine.runner import Runner
from mosslive.engine.stepper import StepResult
from mosslive.errors import MossliveError
from mosslive.kernels import Matrix
from mosslive.kernels.kernel_set import KernelSet
from mosslive.model import DecoderWeights, LayerWeights, TailWeights

_CPU = torch.device("cpu")
_NANO = Subject("nano", "cpu")
_CONFIG = random_config("nano")
_WEIGHTS = random_weights(_CONFIG, _CPU)


def _decode(**changed: Any) -> decode.DecodeSettings:
    settings = decode.DecodeSettings(
        _NANO, streams=(1,), contexts=(20,), precisions=("fp32",), repeats=3, reference=False
    )
    return replace(settings, **changed)


def test_decode_reports_rows_checks_and_conditions(tmp_path: Path) -> None:
    """The last line is JSON with the conditions; every timed step and the baseline are verified;
    the HTML page loads nothing from other places."""
    page = tmp_path / "report.html"
    options = "--size nano --device cpu --streams 1,6 --context 20 --precision bf16,fp8 --repeats 3"
    arguments = ["bench", "decode", *options.split(), "--no-compiled", "--html", str(page)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    last = json.loads(result.stdout.splitlines()[-1])
    assert last["conditions"]["versions"]["torch"] == torch.__version__
    assert (
        "--streams 1,6 --context 20 --precision bf16,fp8 --no-compiled"
        in (last["conditions"]["command"])
    )
    timed = {(row["form"], row["precision"], row["streams"]) for row in last["rows"]}
    ours = {("mosslive", precision, n) for precision in ("bf16", "fp8") for n in (1, 6)}
    assert timed == ours | {("transformers eager", "bf16", 1)}
    checked = {(check["what"], check["precision"]) for check in last["checks"]}
    assert ("64 single rows after 20", "fp32") in checked
    assert {(f"decode step, {n} streams, 20 rows", p) for _, p, n in ours} <= checked
    assert all(row["share"] for row in last["rows"] if row["form"] == "mosslive")
    assert last["figures"]["greedy rows equal, lazy tails and both tails, fp32"] == 40
    text = page.read_text(encoding="utf-8")
    assert "<svg" in text
    assert "transformers eager" in text
    assert not any(word in text for word in ("http:", "https:", "<script", "src="))


def test_prefill_is_verified_at_several_lengths() -> None:
    """Prefill verifies both heads after prompts of six lengths."""
    settings = prefill.PrefillSettings(_NANO, (40,), ("fp32", "bf16", "fp8"), 3)
    result = prefill.measure_prefill(settings)
    assert [(row.form, row.precision) for row in result.rows] == [
        *(("mosslive", precision) for precision in settings.precisions),
        ("transformers eager", "bf16"),
    ]
    assert {check.rows for check in result.checks} == {6}
    assert all(c.closeness.error < 1e-5 for c in result.checks if c.precision == "fp32")


def test_a_wrong_kernel_gets_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder whose logits differ from transformers' gets no time."""
    honest = KernelSet.norm_feed_forward

    def swapped(
        hidden: Tensor, delta: Tensor, norm: Tensor, eps: float, gate_up: Matrix, down: Matrix
    ) -> Tensor:
        rolled = Matrix(gate_up.weight.roll(len(gate_up.weight) // 2, 0))
        return honest(hidden, delta, norm, eps, rolled, down)

    monkeypatch.setattr(KernelSet, "norm_feed_forward", staticmethod(swapped))
    result = decode.measure_decode(_decode())
    assert not result.rows
    assert "fp32, text head: differs from transformers" in result.refused[0]
    assert "NOT VERIFIED" in text_report(result)


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_a_wrong_weight_gets_no_time(precision: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verification in bf16 and fp8 detects layers in the wrong order."""

    def exchanged(weights: DecoderWeights, precision: Any) -> DecoderWeights:
        made = as_precision(weights, precision)
        return made if precision == "fp32" else replace(made, trunk=made.trunk[::-1])

    monkeypatch.setattr(decode, "as_precision", exchanged)
    result = decode.measure_decode(_decode(precisions=("fp32", precision)))
    assert {row.precision for row in result.rows} == {"fp32"}
    assert f"{precision}, text head: differs" in result.refused[0]


def test_bf16_may_differ_as_much_as_transformers_does() -> None:
    """The bf16 limit comes from the rounding of the reference."""
    wanted = torch.randn(4, 500, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(4, 500, generator=torch.Generator().manual_seed(1))
    expected = Expected({"text": wanted}, {"text": compare("x", wanted + 0.01 * noise, wanted)})
    verify_logits("x", "bf16", {"text": wanted + 0.014 * noise}, expected)
    with pytest.raises(NotVerified, match="rms"):
        verify_logits("x", "bf16", {"text": wanted + 0.016 * noise}, expected)
    with pytest.raises(NotVerified, match="cosine"):
        verify_logits("x", "fp8", {"text": wanted + 0.2 * noise}, expected)


@pytest.mark.parametrize("bad", [torch.ones(2, 4), torch.tensor([[0.0, torch.nan], [1.0, 2.0]])])
def test_constant_or_not_finite_is_refused(bad: Tensor) -> None:
    """Constant or non-finite logits fail in every precision."""
    with pytest.raises(NotVerified, match="constant or not finite"):
        compare("x", bad, torch.zeros(bad.shape) + torch.arange(float(bad.shape[1])))


def test_codes_must_be_the_best() -> None:
    """A recorded step must choose the id with the largest logit, up to ties."""
    logits = torch.tensor([[1.0, 9.0, 8.99], [5.0, 1.0, 0.0]])
    check_codes(logits, [(0, 1), (0, 0)])
    check_codes(logits, [(0, 2), (0, 0)])
    wrongs: list[list[StepResult]] = [
        [(0, 0), (0, 0)],
        [(0, 1), (0, 3)],
        [(0, 1), MossliveError("no")],
    ]
    for wrong in wrongs:
        with pytest.raises(NotVerified):
            check_codes(logits, wrong)


class _Unsteady:
    """Graphs whose ids change with the third run."""

    def __init__(self, changes: bool) -> None:
        self.buffers = SimpleNamespace(ids=torch.zeros(2, 3, dtype=torch.int64))
        self._left = 3 if changes else 10**9

    def bucket(self, count: int) -> int:
        return count

    def run(self, name: str, bucket: int) -> None:
        self._left -= name == "audio"
        self.buffers.ids[1, 0] = self._left <= 0


def test_an_unsteady_step_gets_no_time() -> None:
    """A step whose ids change between repetitions, as in a race between kernels, gets no time."""
    stepper: Any = SimpleNamespace(graphs=_Unsteady(changes=False))
    check_steady(stepper, 3)
    stepper.graphs = _Unsteady(changes=True)
    with pytest.raises(NotVerified, match="gives different ids"):
        check_steady(stepper, 3)


def test_lazy_tails_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lazy tail that catches up from the wrong rows fails verification."""
    weights = as_precision(_WEIGHTS, "fp32")
    check_lazy(_CONFIG, weights)
    honest = Runner._stored
    monkeypatch.setattr(Runner, "_stored", lambda *given: honest(*given).flip(0))
    with pytest.raises(NotVerified, match="both tails"):
        check_lazy(_CONFIG, weights)


def _meta_weights(config: ModelConfig, trunk: torch.dtype) -> DecoderWeights:
    """Returns weights of any size without memory."""

    def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    def matrix(rows: int, columns: int, dtype: torch.dtype) -> Matrix:
        scale = empty(rows, dtype=torch.float32) if dtype == torch.float8_e4m3fn else None
        return Matrix(empty(rows, columns, dtype=dtype), scale)

    def layer(dtype: torch.dtype) -> LayerWeights:
        hidden, inner, width = config.hidden_size, config.intermediate_size, config.head_dim
        heads, keys = config.num_attention_heads, config.num_key_value_heads
        return LayerWeights(
            input_norm=empty(hidden),
            qkv=matrix((heads + 2 * keys) * width, hidden, dtype),
            qk_norm=empty(heads + keys, width),
            o=matrix(hidden, heads * width, dtype),
            post_norm=empty(hidden),
            gate_up=matrix(2 * inner, hidden, dtype),
            down=matrix(hidden, inner, dtype),
        )

    def tail(size: int) -> TailWeights:
        layers = [layer(torch.bfloat16) for _ in range(config.num_modality_layers)]
        head = matrix(size, config.hidden_size, torch.bfloat16)
        return TailWeights(empty(size, config.hidden_size), layers, empty(config.hidden_size), head)

    tails = {"text": tail(config.vocab_size), "audio": tail(config.audio_vocab_size)}
    return DecoderWeights([layer(trunk) for _ in range(config.num_shared_layers)], tails)  # type: ignore[arg-type]


def test_bytes_are_the_models() -> None:
    """At full size a speech step reads 14.0 GB, 16.8 GB with both tails and 7.9 GB with a float8
    trunk; a row of context is 144 KiB; a prompt row costs two FLOPs per weight of 36 layers."""
    config = random_config("full")
    wide, narrow = (_meta_weights(config, t) for t in (torch.bfloat16, torch.float8_e4m3fn))
    assert weight_bytes(wide, ("audio",)) == pytest.approx(14.03e9, rel=1e-3)
    assert weight_bytes(wide, ("text", "audio")) == pytest.approx(16.81e9, rel=1e-3)
    assert weight_bytes(narrow, ("audio",)) == pytest.approx(7.86e9, rel=1e-3)
    assert cache_bytes(wide, ("audio",), [1, 1], 8 * 128) == 2 * 36 * 2 * 1024 * 2
    in_bf16, in_float8 = pass_flops(wide, ("audio",), 512, 32 * 128)
    assert in_float8 == 0
    assert in_bf16 == pytest.approx(512 * 2 * 36 * 192.94e6, rel=0.02)
    rest, most = pass_flops(narrow, ("audio",), 512, 32 * 128)
    assert rest + most == in_bf16
    assert most / in_bf16 == pytest.approx(32 / 36, rel=0.02)


def test_precisions_hold_the_same_values() -> None:
    """fp32 has the values of bf16; a float8 trunk made directly equals a converted one; float8
    cannot be converted back."""
    wide, narrow = as_precision(_WEIGHTS, "fp32"), as_precision(_WEIGHTS, "fp8")
    assert torch.equal(wide.trunk[0].down.weight, _WEIGHTS.trunk[0].down.weight.float())
    at_once = random_weights(_CONFIG, _CPU, float8_trunk=True)
    for one, other in zip(narrow.trunk, at_once.trunk, strict=True):
        assert torch.equal(one.qkv.weight.float(), other.qkv.weight.float())
        assert one.qkv.scale is not None
        assert other.qkv.scale is not None
        assert torch.equal(one.qkv.scale, other.qkv.scale)
    with pytest.raises(ConfigError, match="precision"):
        as_precision(narrow, "bf16")


def test_a_random_engine_loads_and_damage_is_seen(tmp_path: Path) -> None:
    """A start runs every check of the product and fails on one changed byte."""
    folder = write_random_engine(tmp_path / "engine", _CONFIG, as_precision(_WEIGHTS, "fp8"))
    assert load_once(str(folder), "cpu")["first row"] > 0
    file = next(folder.glob("weights-*"))
    content = bytearray(file.read_bytes())
    content[-7] ^= 1
    file.write_bytes(content)
    with pytest.raises(CheckpointError):
        load_once(str(folder), "cpu")


def test_load_reports_the_first_start_separately(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first start, which compiles kernels, is not part of the median."""
    parts = {"bytes read": 1.0, "rows the pages hold": 64}
    starts = [(9000.0, parts), (5000.0, parts), (4000.0, parts)]
    monkeypatch.setattr(load, "_starts", lambda *_: starts)
    result = load.measure_load(load.LoadSettings(_NANO, "bf16", 2))
    assert [row.times.median_ms for row in result.rows] == [9000, 4500]
    assert result.figures is not None
    assert result.figures["last start: bytes read, s"] == 1


def test_engine_reports_rows_per_second_and_missed_deadlines() -> None:
    """The engine benchmark counts the rows of all streams, through the real scheduler and
    thread."""
    settings = engine.EngineBenchSettings(_NANO, (1, 3), context=24, rows=12, precision="fp32")
    result = engine.measure_engine(settings)
    assert {row.streams for row in result.rows} == {1, 3}
    assert result.figures is not None
    assert result.figures["3 streams, rows made per second"] > 0
    assert result.figures["3 streams, missed deadlines"].endswith("of 36 rows")


def test_an_engine_that_samples_wrong_codes_gets_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Greedy replies are verified before anything is timed."""
    monkeypatch.setattr("mosslive.engine.sample.greedy", lambda logits: int(logits.argmin()))
    settings = engine.EngineBenchSettings(_NANO, (2,), context=24, rows=12, precision="fp32")
    result = engine.measure_engine(settings)
    assert not result.rows
    assert "do not have the largest logits" in result.refused[0]


def test_only_steps_of_all_streams_count() -> None:
    """Steps that serve fewer streams, at the start and the end, do not count."""
    counts = (1, 3, 3, 3, 2, 3)
    steps = [StepTime(count, begun, 0.25) for begun, count in enumerate(counts)]
    assert full_steps(steps, 3) == ([1000.0, 1000.0], [250.0, 250.0])


def _result(rows: tuple[BenchRow, ...]) -> BenchResult:
    return BenchResult("a <b>", conditions_of("cmd", "cpu", "size", "w", {"n": "t"}), None, rows)


def test_reports_show_goals_and_escape() -> None:
    """Reports mark missed goals, escape names, and draw a line through two points."""
    rows = tuple(
        BenchRow("s", "mosslive", "bf16", n, 8, Times(4.0 * n, 3.0, 5.0, 9), 10, 1.0, "bytes", 5.0)
        for n in (1, 64)
    )
    text = text_report(_result(rows))
    assert "<= 5: met" in text
    assert "<= 5: missed" in text
    page = html_page([_result(rows)])
    assert "a &lt;b&gt;" in page
    assert page.count("<polyline") == 2
    assert page.count("<rect") == 2
    for plot in re.findall("<svg.*?</svg>", page):
        ElementTree.fromstring(plot)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: numbers("streams", "1,x"),
        lambda: numbers("streams", "0"),
        lambda: Subject("huge", "cpu"),  # type: ignore[arg-type]
        lambda: Subject("nano", "tpu"),
        lambda: load.LoadSettings(_NANO, "fp4", 1),
        lambda: engine.EngineBenchSettings(_NANO, (1,), 8, 8, "bf16", memory_cap_gib=22),
        lambda: decode.measure_decode(_decode(precisions=("int4",))),
    ],
)
def test_bad_options_are_refused(wrong: Any) -> None:
    """A bad option fails with one sentence that names the allowed values."""
    with pytest.raises(ConfigError, match=r"allowed|cuda|nano"):
        wrong()


def test_closeness_is_by_the_worst_row() -> None:
    """Closeness is that of the worst row, so one wrong stream among many fails."""
    wanted = torch.randn(64, 100, generator=torch.Generator().manual_seed(0))
    ours = wanted.clone()
    ours[17] = ours[17].roll(1)
    close: Closeness = compare("x", ours, wanted)
    assert close.cosine < 0.9


@pytest.mark.parametrize("command", ["decode", "engine"])
def test_a_context_beyond_the_model_is_refused(command: str) -> None:
    """A context beyond the model fails before any computation and names the limit."""
    arguments = ["--size", "nano", "--device", "cpu", "--context", "999999999"]
    result = CliRunner().invoke(app, ["bench", command, *arguments])
    assert isinstance(result.exception, MossliveError)
    assert "at most 4096 rows" in str(result.exception)
