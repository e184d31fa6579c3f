"""The speaker encoder: vectors of the published model, refused files, refused sound."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import load_file
from torch import Tensor

from mosslive.checkpoint.campplus_onnx import campplus_onnx, random_campplus
from mosslive.codec.fbank import fbank
from mosslive.codec.speaker import MIN_SAMPLES, BadSpeakerModel, BadVoiceAudio, SpeakerEncoder
from mosslive.errors import MossliveError

GOLDEN = Path(__file__).parents[1] / "golden" / "campplus.safetensors"
Sizes = list[int | str | None]


def noise(samples: int, seed: int = 0) -> Tensor:
    return 0.3 * torch.randn(samples, generator=torch.Generator().manual_seed(seed))


def averaging_graph(
    sizes: Sizes,
    width: int | None = 192,
    declared: Sizes | None = None,
    gain: float = 1.0,
    element: int = TensorProto.FLOAT,
    extra_input: bool = False,
    frozen_frames: int | None = None,
) -> bytes:
    """The smallest graph [1, T, bands] → [1, width]: the mean over time through a matrix. Without
    a width there is no matrix, and only a run can tell how wide the mean is; with frozen frames it
    says that it takes any number of them and takes one."""
    bands = sizes[-1] if isinstance(sizes[-1], int) else 80
    matrix = np.full((bands, width or 1), gain, helper.tensor_dtype_to_np_dtype(element))
    time = len(sizes) - 2
    form = np.array([frozen_frames or 0 if axis == time else 0 for axis in range(len(sizes))])
    nodes = [
        helper.make_node("Reshape", ["x", "form"], ["frames"]),  # zeros keep a size as it is
        helper.make_node("ReduceMean", ["frames"], ["mean"], axes=[time], keepdims=0),
        helper.make_node("Identity", ["mean"], ["y"])
        if width is None
        else helper.make_node("MatMul", ["mean", "matrix"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", element, sizes)]
    if extra_input:
        inputs.append(helper.make_tensor_value_info("length", TensorProto.INT64, [1]))
    shape = declared or ["batch", width]
    outputs = [helper.make_tensor_value_info("y", element, shape)]
    constants = [numpy_helper.from_array(v, n) for v, n in ((matrix, "matrix"), (form, "form"))]
    graph = helper.make_graph(nodes, "averaging", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 17)]
    content: bytes = helper.make_model(
        graph, opset_imports=opsets, ir_version=8
    ).SerializeToString()
    return content


@pytest.fixture(scope="module")
def golden() -> dict[str, Tensor]:
    return load_file(GOLDEN)


@pytest.fixture(scope="module")
def encoder(golden: dict[str, Tensor], tmp_path_factory: pytest.TempPathFactory) -> SpeakerEncoder:
    path = tmp_path_factory.mktemp("speaker") / "campplus.onnx"
    weights = {name[2:]: value for name, value in golden.items() if name.startswith("w.")}
    path.write_bytes(campplus_onnx(weights))
    return SpeakerEncoder(path)


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    return tmp_path / "campplus.onnx"


@pytest.mark.parametrize("index", [0, 1])
def test_published_vectors(golden: dict[str, Tensor], encoder: SpeakerEncoder, index: int) -> None:
    """Golden pass limit: 1e-5 of the largest value, 430 and 37 frames."""
    wanted, found = golden[f"io.embedding{index}"], encoder.embed(golden[f"io.feat{index}"])
    assert found.shape == wanted.shape
    assert found.dtype == torch.float32
    assert (found - wanted).abs().max() <= 1e-5 * wanted.abs().max()


def test_sound_to_vector(encoder: SpeakerEncoder) -> None:
    """Filter bank, minus its mean per band over time, through the network; nothing else."""
    wave = noise(16_000)
    features = fbank(wave)
    wanted = encoder.embed(features - features.sum(0) / len(features))
    torch.testing.assert_close(encoder.vector(wave), wanted, rtol=1e-4, atol=1e-4)


def test_loudness_does_not_matter(encoder: SpeakerEncoder) -> None:
    """The mean per band is removed, and with it the level; without that the vector would move."""
    wave = noise(12_000)
    vector = encoder.vector(wave)
    torch.testing.assert_close(encoder.vector(wave / 4), vector, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(encoder.embed(fbank(wave)), vector, rtol=1e-2, atol=1e-2)


def test_vector_is_not_normalised(encoder: SpeakerEncoder) -> None:
    """The flow divides by the length; doing it here too would hide a wrong vector."""
    assert float(encoder.vector(noise(9000)).norm()) > 2


def test_layout_and_type_of_the_sound(encoder: SpeakerEncoder) -> None:
    """A strided view and a double-precision wave give what the plain wave gives."""
    wave = noise(MIN_SAMPLES)
    strided = torch.stack((wave, noise(MIN_SAMPLES, 1)), 1)[:, 0]
    assert not strided.is_contiguous()
    wanted = encoder.vector(wave)
    torch.testing.assert_close(encoder.vector(strided), wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(encoder.vector(wave.double()), wanted, rtol=1e-4, atol=1e-4)


def test_silence_has_a_finite_vector(encoder: SpeakerEncoder) -> None:
    """All features equal: no spread over time, and still no NaN."""
    assert encoder.vector(torch.zeros(MIN_SAMPLES)).isfinite().all()


def test_one_thread_on_the_cpu(encoder: SpeakerEncoder) -> None:
    """A voice taken during live talk must not take all cores, nor the GPU."""
    options = encoder._session.get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (1, 1)
    assert encoder._session.get_providers() == ["CPUExecutionProvider"]


@pytest.mark.parametrize("samples", [0, 1, 399, 400, MIN_SAMPLES - 1])
def test_short_sound_is_refused(encoder: SpeakerEncoder, samples: int) -> None:
    """Less than half a second: the message says how long it is and how long it must be."""
    with pytest.raises(BadVoiceAudio, match=rf"{samples / 16000:.3f} s is too short.*0\.5 s"):
        encoder.vector(noise(samples))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("place", [0, 777, -1])
def test_broken_samples_are_refused(encoder: SpeakerEncoder, value: float, place: int) -> None:
    """One NaN would spread over the whole vector; it is refused even where no frame reaches."""
    wave = noise(MIN_SAMPLES)
    wave[place] = value
    with pytest.raises(BadVoiceAudio, match="samples that are NaN or infinite"):
        encoder.vector(wave)


def test_overflow_is_refused(encoder: SpeakerEncoder) -> None:
    """Finite samples with infinite power are an error of the sound, not of the network."""
    with pytest.raises(BadVoiceAudio, match="features"):
        encoder.vector(noise(MIN_SAMPLES) * 1e30)


@pytest.mark.parametrize(
    "wave", [torch.zeros(2, 9000), torch.zeros(()), torch.zeros(9000, dtype=torch.int16)]
)
def test_other_forms_of_sound_are_refused(encoder: SpeakerEncoder, wave: Tensor) -> None:
    """One channel of floats; int16 samples would be a forgotten conversion."""
    with pytest.raises(BadVoiceAudio, match="one channel of floating-point samples"):
        encoder.vector(wave)


@pytest.mark.parametrize("shape", [(2, 80), (0, 80), (40, 79), (1, 40, 80)])
def test_other_forms_of_features_are_refused(
    encoder: SpeakerEncoder, shape: tuple[int, ...]
) -> None:
    """Two frames have one after the stride, which has no spread; bands are 80."""
    with pytest.raises(BadVoiceAudio, match=r"allowed: \[3 or more, 80\]"):
        encoder.embed(torch.zeros(shape))


@pytest.mark.parametrize(
    ("sizes", "declared"),
    [
        (["batch", "frames", 80], ["batch", 192]),
        ([1, "frames", 80], [1, 192]),
        ([None, None, 80], [None, None]),
        (["batch", "frames", "bands"], ["batch", "width"]),
    ],
)
def test_open_sizes_are_accepted(model_path: Path, sizes: Sizes, declared: Sizes) -> None:
    """Exporters leave sizes open in different ways; the run at opening settles them."""
    model_path.write_bytes(averaging_graph(sizes, declared=declared))
    encoder = SpeakerEncoder(str(model_path))
    rows = torch.arange(240.0).view(3, 80)
    torch.testing.assert_close(encoder.embed(rows), torch.full((192,), float(rows.mean(0).sum())))


GOOD: Sizes = ["batch", "frames", 80]
BAD_FILES = {
    "empty": (b"", "no readable ONNX file"),
    "text": (b"version https://git-lfs.github.com/spec/v1\n", "no readable ONNX file"),
    "zeros": (bytes(4096), "no readable ONNX file"),
    "truncated": (averaging_graph(GOOD)[:-100], "no readable ONNX file"),
    "input width": (averaging_graph(["batch", "frames", 60]), r"'frames', 60\].*any, 80\]"),
    "output width": (averaging_graph(GOOD, width=256), r"'batch', 256\].*\.\., 192\]"),
    "width found by running": (
        averaging_graph(["batch", "frames", "bands"], None, [None, None]),
        r"gives \[1, 80\] for a voice; allowed: \[\.\., 192\]",
    ),
    "fixed length": (averaging_graph(["batch", 200, 80]), r"200, 80\].*any, 80\]"),
    "fixed batch": (averaging_graph([4, "frames", 80]), r"\[4, 'frames', 80\]"),
    "no batch axis": (
        averaging_graph(["frames", "bands"], declared=[192]),
        r"maps float \['frames', 'bands'\]",
    ),
    "length found by running": (
        averaging_graph(GOOD, frozen_frames=50),
        "cannot be run on 51 frames: .*cannot be reshaped",
    ),
    "two inputs": (averaging_graph(GOOD, extra_input=True), r"int64 \[1\] to"),
    "doubles": (averaging_graph(GOOD, element=TensorProto.DOUBLE), "maps double"),
    "NaN weights": (averaging_graph(GOOD, gain=float("nan")), "NaN or infinite"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_file_is_one_clear_error(
    model_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    """One line that names the file and the fault; nothing printed, nothing made or changed."""
    content, message = BAD_FILES[name]
    model_path.write_bytes(content)
    with pytest.raises(BadSpeakerModel, match=message) as caught:
        SpeakerEncoder(model_path)
    assert str(model_path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")
    assert list(model_path.parent.iterdir()) == [model_path]
    assert model_path.read_bytes() == content


@pytest.mark.parametrize("kind", ["absent", "folder"])
def test_no_file(tmp_path: Path, kind: str) -> None:
    """A missing file is named."""
    path = tmp_path / "campplus.onnx"
    if kind == "folder":
        path.mkdir()
    with pytest.raises(BadSpeakerModel, match=r"campplus\.onnx: no such file"):
        SpeakerEncoder(path)


WHOLE = campplus_onnx(random_campplus(0, 1, 2))


@settings(derandomize=True, deadline=None, max_examples=40)
@given(kept=st.integers(0, len(WHOLE) - 1) | st.integers(len(WHOLE) - 64, len(WHOLE) - 1))
def test_any_cut_is_noticed(tmp_path_factory: pytest.TempPathFactory, kept: int) -> None:
    """A download that stopped anywhere is refused, also within the last few bytes."""
    path = tmp_path_factory.mktemp("cut") / "campplus.onnx"
    path.write_bytes(WHOLE[:kept])
    with pytest.raises(BadSpeakerModel, match="no readable ONNX file"):
        SpeakerEncoder(path)


def test_missing_package(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without onnxruntime the error says what to install."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MossliveError, match=r"onnxruntime: pip install 'mosslive\[voice\]'"):
        SpeakerEncoder(model_path)


def test_packages_are_loaded_only_where_used() -> None:
    """Importing the modules must work where neither onnx nor onnxruntime is installed."""
    code = (
        "import sys, mosslive.codec.speaker, mosslive.checkpoint.campplus_onnx\n"
        "heavy = {'onnx', 'onnxruntime'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
