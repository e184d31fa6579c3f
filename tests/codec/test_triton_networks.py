"""The codec's networks through the Triton kernels: on a GPU, or in the interpreter on a CPU."""

import copy
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mosslive.codec.bigvgan import BigVgan, BigVganVocoder
from mosslive.codec.bigvgan import graph as bigvgan_graph
from mosslive.codec.encoder import Encoder, EncoderDims
from mosslive.codec.encoder_batch import EncoderBatch
from mosslive.codec.encoder_stream import EncoderStream, HeardTurn
from mosslive.codec.hift import Hift, HiftSettings
from mosslive.codec.hift import stream as hift_stream
from mosslive.codec.hift.stream import HiftStream
from mosslive.kernels.arithmetic import arithmetic
from mosslive.kernels.dispatch import TRITON_ONLY
from tests.codec.bigvgan.test_bigvgan import TINY, random_mel, random_tensors

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ONE_STAGE = replace(
    TINY,
    hop_size=2,
    upsample_rates=(2,),
    upsample_kernel_sizes=(4,),
    resblock_kernel_sizes=(1, 3),
    resblock_dilation_sizes=((1,), (2,)),
)
HIFT = HiftSettings(
    mel_bins=5,
    channels=8,
    f0_channels=3,
    harmonics=2,
    upsample_rates=(2, 2),
    upsample_kernels=(4, 4),
    resblock_kernels=(3, 5),
    source_kernels=(3, 3),
    dilations=(1, 3),
    n_fft=8,
    hop_samples=2,
)


@pytest.fixture
def exact_products() -> Iterator[None]:
    with arithmetic("fp32"):
        yield


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def close(found: Tensor, wanted: Tensor) -> bool:
    assert found.shape == wanted.shape
    return float((found.cpu().double() - wanted.double()).abs().max()) < 1e-4 * float(
        wanted.abs().max()
    )


@pytest.mark.usefixtures("exact_products")
def test_bigvgan_offline_and_stream() -> None:
    """Whole, and in chunks until layers are full and the recorded step takes over; two rows."""
    config = ONE_STAGE
    tensors = random_tensors(config)
    exact = BigVgan.from_tensors(tensors, config).double()
    network = BigVgan.from_tensors(tensors, config, TRITON_ONLY).to(DEVICE)
    mel = torch.stack([random_mel(5, 60, seed) for seed in (0, 1)])
    assert close(network(mel[..., :9].to(DEVICE)), exact(mel[..., :9].double()))
    stream, wave = network.stream(), []
    for begin in range(0, 60, 15):
        wave.append(stream.push(mel[..., begin : begin + 15].to(DEVICE)))
    assert isinstance(stream._stream.state, bigvgan_graph.FullState)
    wave.append(stream.push(mel[..., :0].to(DEVICE)))  # an odd chunk between
    wave.append(stream.finish())
    assert close(torch.cat(wave, -1), exact(mel.double()))


@pytest.mark.usefixtures("exact_products")
def test_bigvgan_streams_share_recorded_steps() -> None:
    """Three streams, the third one chunk later: each equals its offline wave, and those at the
    same point are padded to a power of two in one recorded step."""
    config = ONE_STAGE
    tensors = random_tensors(config)
    exact = BigVgan.from_tensors(tensors, config).double()
    vocoder = BigVganVocoder(BigVgan.from_tensors(tensors, config, TRITON_ONLY).to(DEVICE))
    mels = [random_mel(5, 75, seed).float() for seed in range(3)]
    streams, waves = [vocoder.open() for _ in mels], [[], [], []]  # type: ignore[var-annotated]
    for chunk in range(6):
        members = [k for k in range(3) if chunk - (k == 2) in range(5)]
        firsts = [15 * (chunk - (k == 2)) for k in members]
        pushed = [mels[k][:, n : n + 15].to(DEVICE) for k, n in zip(members, firsts, strict=True)]
        for k, wave in zip(
            members, vocoder.push([streams[k] for k in members], pushed), strict=True
        ):
            waves[k].append(wave)
    assert all(isinstance(stream.state, bigvgan_graph.FullState) for stream in streams)
    nothing = [mel[:, :0].to(DEVICE) for mel in mels]
    for k, wave in enumerate(vocoder.finish(streams, nothing)):
        waves[k].append(wave)
        assert close(torch.cat(waves[k]), exact(mels[k].double()))


@pytest.mark.usefixtures("exact_products")
def test_hift_offline_and_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pitch, source and wave; then windows of three streams, which are filled up to four."""
    # Weights twice as large would make it roar: clipped, and rounding enlarged a thousandfold.
    tensors = {n: random(*t.shape) / 8 for n, t in Hift(HIFT).state_dict().items()}
    exact = Hift.from_tensors(tensors, HIFT).double()
    hift = Hift.from_tensors(tensors, HIFT, TRITON_ONLY).to(DEVICE)
    mel = random(1, 5, 6)
    assert close(hift.f0(mel.to(DEVICE)), exact.f0(mel.double()))
    source = exact.source(exact.f0(mel.double()))
    assert close(
        hift.decode(mel.to(DEVICE), source.float().to(DEVICE)), exact.decode(mel.double(), source)
    )
    monkeypatch.setattr(hift_stream, "_CHUNK_FRAMES", (10,))

    def hum(f0: Tensor, _: Tensor | None, begin: int) -> Tensor:
        return f0.repeat_interleave(8, 1)[:, begin:] / 1e3

    for network in (exact, hift):
        monkeypatch.setattr(network, "source", hum)
    results = []
    for network in (exact, hift):
        like, stream = network.window, HiftStream(network)
        states = [stream.open() for _ in range(3)]
        pushes = [[random(5, 10, seed=10 * k + s).to(like) for s in range(3)] for k in range(3)]
        results.append([torch.stack(stream.push(states, mels)) for mels in pushes])
    assert all(close(found, wanted) for wanted, found in zip(*results, strict=True))


@pytest.mark.usefixtures("exact_products")
def test_encoder_steps() -> None:
    """A turn in blocks gives the codes of the whole, every time."""
    torch.manual_seed(0)
    network = Encoder(EncoderDims(4, 16, 2, 24, 1, 40, 30), TRITON_ONLY).to(DEVICE)
    network.codebook.weight.copy_(random(30, 16))
    network.embed_positions.weight.copy_(random(40, 16))
    network.measure_codebook()
    wave = random(3 * 1280)
    wanted = network.encode(wave.clamp(-1, 1)).tolist()
    for _ in range(2):
        stream = EncoderStream(network)
        live = [
            code for piece in torch.split(wave.clamp(-1, 1), 900) for code in stream.push(piece)
        ]
        turn = stream.finish()
        assert turn.codes == wanted
        assert len(live) == 3
    batch = EncoderBatch(network, 3.0)
    turns = [batch.add() for _ in range(2)]
    for member in turns:
        batch.push(member, wave.clamp(-1, 1))
    assert batch.start(turns).result() == dict.fromkeys(turns, live)
    for heard in batch.finish(turns).result().values():
        assert isinstance(heard, HeardTurn)
        assert heard.codes == wanted


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE != "cuda", reason="no NVIDIA GPU on this machine")
def test_golden_values_on_a_gpu() -> None:
    """The published values within the CPU's limits, in float32, whatever switches are set."""
    from tests.codec import test_encoder
    from tests.codec.bigvgan.test_bigvgan import golden, golden_network, relative_error
    from tests.codec.hift import test_hift

    torch.backends.cudnn.allow_tf32 = True
    io = golden("io")
    wave = copy.deepcopy(golden_network()).to(DEVICE)(io["mel"].to(DEVICE))
    assert relative_error(wave.cpu(), io["wave"]) < 1e-4
    hift = Hift.from_tensors(test_hift.WEIGHTS).to(DEVICE)
    mel, source = (test_hift.IO[name].to(DEVICE) for name in ("mel", "source"))
    assert test_hift.error(hift.f0(mel).cpu(), test_hift.IO["f0"]) < 5e-6
    assert test_hift.error(hift.decode(mel, source).cpu(), test_hift.IO["wave"]) < 1e-4
    heard = Encoder.from_tensors(test_encoder.WEIGHTS, test_encoder.HEADS).to(DEVICE)
    codes = test_encoder.GOLDEN["io.codes"]
    wave = test_encoder.GOLDEN["io.wave"].to(DEVICE)
    assert torch.equal(heard.encode(wave).cpu(), codes)
    stream = EncoderStream(heard)
    for piece in torch.split(wave, 1280):
        stream.push(piece)
    assert stream.finish().codes == codes.tolist()
