"""The encoder against the public one, and its block-by-block form against its whole form."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from mosslive.codec.encoder import Encoder, EncoderDims
from mosslive.errors import MossliveError

GOLDEN = load_file(Path(__file__).parents[1] / "golden" / "whisper_vq.safetensors")
WEIGHTS = {name[2:]: tensor for name, tensor in GOLDEN.items() if name.startswith("w.")}
LIMIT = 1e-5  # max |difference| / max |reference|, from the golden data's own notes
HEADS = 4


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder.from_tensors(WEIGHTS, HEADS)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def error(result: Tensor, reference: Tensor) -> float:
    assert result.shape == reference.shape
    return float((result - reference).abs().max() / reference.abs().max())


def as_steps(features: Tensor) -> Tensor:
    """[..., F] → the same frames in the order `step` takes them; column 0 is to be ignored."""
    return F.pad(features, (1, 0), value=7.0)[..., :-1]


@pytest.mark.parametrize("case", ["", "_random"])
def test_states_and_codes_are_the_published_ones(encoder: Encoder, case: str) -> None:
    """Features give the reference's pooled states and codes."""
    states = encoder(GOLDEN[f"io.feat{case}"][None])[0]
    assert error(states, GOLDEN[f"io.states{case}"]) < LIMIT
    assert torch.equal(encoder.quantise(states), GOLDEN[f"io.codes{case}"])


def test_waveform_to_codes(encoder: Encoder) -> None:
    """30 000 samples give the 24 codes of the reference."""
    assert torch.equal(encoder.encode(GOLDEN["io.wave"]), GOLDEN["io.codes"])


def test_progress_is_reported_by_segment(encoder: Encoder) -> None:
    """One number per segment, the codes it gave; together all codes."""
    reported: list[int] = []
    samples = encoder.dims.segment_samples
    codes = encoder.encode(noise(samples + 2000).clamp(-1, 1), reported.append)
    assert reported == [encoder.dims.segment_codes, 2]
    assert sum(reported) == len(codes)


def test_sizes_are_read_from_the_tensors(encoder: Encoder) -> None:
    """Every size except the number of heads is read from a shape."""
    with safe_open(Path(__file__).parents[1] / "golden" / "whisper_vq.safetensors", "pt") as file:
        config = json.loads(file.metadata()["config"])
    assert encoder.dims == EncoderDims(
        mel_bands=128,
        width=config["d_model"],
        heads=config["heads"],
        ffn=config["ffn"],
        layers=config["layers"],
        positions=config["positions"],
        codes=config["codebook"],
    )


@settings(derandomize=True, deadline=None, max_examples=8)
@given(case=st.sampled_from(["", "_random"]), sizes=st.lists(st.integers(1, 9), min_size=40))
@example(case="", sizes=[1] * 24)
def test_steps_are_the_whole(encoder: Encoder, case: str, sizes: list[int]) -> None:
    """States by blocks of any number of codes equal the reference's, within limits."""
    frames, reference = as_steps(GOLDEN[f"io.feat{case}"][None]), GOLDEN[f"io.states{case}"]
    state, done = encoder.open(1), 0
    for size in sizes:
        part = frames[..., 8 * done : 8 * (done + size)]
        if not part.shape[2]:
            break
        states, codes = encoder.step(state, part, reach=4 * (done + size))
        new = slice(done, done + states.shape[1])
        assert float((states[0] - reference[new]).abs().max()) < LIMIT * float(
            reference.abs().max()
        )
        assert torch.equal(codes[0], GOLDEN[f"io.codes{case}"][new])
        done += size
    assert done >= reference.shape[0]


def test_streams_of_one_batch_are_apart(encoder: Encoder) -> None:
    """Streams at different positions share a step: each gets what it would get alone, idle ones
    stay where they are, whatever frames they get and however few positions are left."""
    features = noise(3, 128, 80)
    wanted = [encoder(row[None])[0] for row in features]
    frames = as_steps(features)
    state = encoder.open(3)
    done = [0, 0, 0]
    got: list[list[Tensor]] = [[], [], []]
    turns = [(0,), (0, 1), (1,), (0, 1, 2), (2,), (0, 2), (1, 2)] * 4
    for awake in turns:
        awake = tuple(row for row in awake if done[row] < 10)
        active = torch.tensor([row in awake for row in range(3)])
        fed = noise(3, 128, 8, seed=sum(done))
        for row in awake:
            fed[row] = frames[row, :, 8 * done[row] : 8 * done[row] + 8]
        states, codes = encoder.step(state, fed, active=active)
        assert torch.equal(codes, encoder.quantise(states))
        for row in awake:
            got[row].append(states[row, 0])
            done[row] += 1
        assert state.position.tolist() == [4 * count for count in done]
    assert done == [10, 10, 10]
    for row in range(3):
        assert error(torch.stack(got[row]), wanted[row]) < LIMIT


def test_an_idle_stream_may_be_full() -> None:
    """A stream at the end of its segment waits in the batch, and can still be taken back."""
    encoder = _with_positions(16)
    frames = as_steps(noise(2, 128, 32))
    state = encoder.open(2)
    full = torch.tensor([True, False])
    first, _ = encoder.step(state, frames, active=full)
    second, _ = encoder.step(state, frames, active=~full)
    assert state.position.tolist() == [16, 16]
    encoder.truncate(state, torch.tensor([2, 4]))
    assert state.position.tolist() == [8, 16]
    again, _ = encoder.step(state, frames[:, :, 16:], active=full)
    torch.testing.assert_close(again[0], first[0, 2:])
    torch.testing.assert_close(second[1], encoder(F.pad(frames[1:, :, 1:], (0, 1)))[0])


@settings(derandomize=True, deadline=None, max_examples=15)
@given(cut=st.integers(0, 12), done=st.integers(0, 12))
def test_truncate_goes_back_exactly(encoder: Encoder, cut: int, done: int) -> None:
    """After going back, other frames from there on give what a fresh stream gives; a
    stream that is earlier is not moved."""
    old, new = (as_steps(noise(1, 128, 96, seed=seed)) for seed in (1, 2))
    state = encoder.open(1)
    if done:
        encoder.step(state, old[..., : 8 * done])
    encoder.truncate(state, cut)
    kept = min(cut, done)
    assert state.position.tolist() == [4 * kept]
    if kept == 12:
        return
    mixed = torch.cat((old[..., : 8 * kept], new[..., 8 * kept :]), 2)
    result, _ = encoder.step(state, mixed[..., 8 * kept :])
    fresh, _ = encoder.step(encoder.open(1), mixed)
    torch.testing.assert_close(result, fresh[:, kept:])


def test_later_frames_change_nothing_before(encoder: Encoder) -> None:
    """Code k depends on frames up to 8k+6, and does depend on that one."""
    features = noise(1, 128, 80)
    states = encoder(features)
    for frame, first_changed in ((39, 5), (38, 4), (40, 5)):
        other = features.clone()
        other[..., frame] += 1
        differs = (encoder(other) - states).abs().amax((0, 2)) > 1e-4
        assert differs.tolist() == [index >= first_changed for index in range(10)]


def test_nearest_code_is_found() -> None:
    """A code has the least Euclidean distance, not the largest product; the first of equals."""
    encoder = Encoder(EncoderDims(4, 8, 2, 8, 1, 4, 30))
    codebook = noise(30, 8).round()  # small whole numbers: products and ties are exact
    codebook[20:] = codebook[5:15]
    encoder.load_state_dict(encoder.state_dict() | {"codebook.weight": codebook})
    states = noise(4, 50, 8, seed=1).round()
    distances = (states[..., None, :] - codebook).double().square().sum(-1)
    nearest = distances.min(-1, keepdim=True).values
    wanted = (distances == nearest).int().argmax(-1)
    assert torch.equal(encoder.quantise(states), wanted)
    assert not torch.equal((states @ codebook.T).argmax(-1), wanted)
    assert ((distances == nearest).sum(-1) > 1).any()


def test_odd_frames_are_pooled_with_zeros(encoder: Encoder) -> None:
    """States that do not fill a code are averaged with zeros."""
    seen: list[Tensor] = []
    hook = encoder.layers[-1].register_forward_hook(lambda _, __, out: seen.append(out))
    states = encoder(noise(1, 128, 11))
    hook.remove()
    assert seen[0].shape[1] == 6
    torch.testing.assert_close(states[0, 1], seen[0][0, 4:].sum(0) / 4)


@pytest.mark.parametrize("samples", [0, 1, 1280, 1281, 25599, 25600, 25601, 60000])
def test_segments_know_nothing_of_each_other(samples: int) -> None:
    """Each segment has its own positions, loudness and ceil(n / 1280) codes."""
    encoder = _with_positions(80)
    assert encoder.dims.segment_samples == 25600
    wave = noise(samples) * torch.linspace(1e-6, 0.3, samples)
    codes = encoder.encode(wave)
    parts = [encoder.encode(wave[first : first + 25600]) for first in range(0, samples, 25600)]
    assert codes.tolist() == [code for part in parts for code in part.tolist()]
    assert codes.shape[0] == -(-samples // 1280)
    assert codes.dtype == torch.int64


def test_segments_are_of_thirty_seconds() -> None:
    """A segment has 375 codes, and whole files have the published counts."""
    dims = EncoderDims(128, 8, 1, 8, 1, 1500, 4)
    assert (dims.segment_codes, dims.segment_samples) == (375, 480_000)
    assert EncoderDims(128, 8, 1, 8, 1, 3000, 4).segment_codes == 375
    encoder = Encoder(dims)
    for seconds, count in ((1.0, 13), (27.43, 343), (36.212, 453)):
        assert encoder.encode(torch.zeros(round(16_000 * seconds))).shape == (count,)


def test_sixteen_bit_sound(encoder: Encoder) -> None:
    """int16 is the same sound as its value / 32768."""
    wave = (GOLDEN["io.wave"] * 32768).round().to(torch.int16)
    assert torch.equal(encoder.encode(wave), encoder.encode(wave / 32768))


@pytest.mark.parametrize(
    ("wave", "message"),
    [
        (torch.zeros(2, 100), r"shape \[2, 100\]; allowed: one axis"),
        (torch.zeros(100, dtype=torch.int32), "type torch.int32; allowed"),
        (torch.tensor([0.0, torch.nan]), "not finite"),
        (torch.tensor([0.0, -torch.inf]), "not finite"),
        (torch.tensor([0.0, 20000.0]), "exceeds 4.0"),
    ],
)
def test_bad_sound(encoder: Encoder, wave: Tensor, message: str) -> None:
    """Input that is not mono sound in [-1, 1] is an error that states what is allowed."""
    with pytest.raises(MossliveError, match=message):
        encoder.encode(wave)


def test_names_are_the_published_ones(encoder: Encoder) -> None:
    """The module's own names, prefix stripped, are the file's, less what no code needs;
    loading them strictly gives the same encoder, its derived numbers included."""
    own = {name.removeprefix("encoder."): tensor for name, tensor in WEIGHTS.items()}
    assert set(own) - set(encoder.state_dict()) == {"embed_positions2.weight"}
    del own["embed_positions2.weight"]
    copied = Encoder(encoder.dims)
    copied.load_state_dict(own, strict=True)
    assert torch.equal(copied.encode(GOLDEN["io.wave"]), GOLDEN["io.codes"])
    copied = Encoder.from_tensors(encoder.state_dict(), HEADS, prefix="")
    assert torch.equal(copied.encode(GOLDEN["io.wave"]), GOLDEN["io.codes"])


def test_what_the_file_has_besides_is_ignored() -> None:
    """Later layers, buffers of the training and other networks in the file are ignored."""
    later = {
        name.replace("layers.1", "layers.2"): tensor + 1
        for name, tensor in WEIGHTS.items()
        if "layers.1" in name
    }
    extra = {"encoder.ema_count": torch.zeros(128), "codebook.weight": torch.zeros(3, 3)}
    encoder = Encoder.from_tensors({**WEIGHTS, **later, **extra}, HEADS, layers=2)
    assert torch.equal(encoder.encode(GOLDEN["io.wave"]), GOLDEN["io.codes"])
    assert Encoder.from_tensors({**WEIGHTS, **later}, HEADS).dims.layers == 3


@pytest.mark.parametrize("name", sorted(WEIGHTS.keys() - {"encoder.embed_positions2.weight"}))
def test_every_tensor_is_needed(name: str) -> None:
    """A file without it is refused, by its published name; so is one where it has another size."""
    with pytest.raises(MossliveError, match=name):
        Encoder.from_tensors({k: t for k, t in WEIGHTS.items() if k != name}, HEADS, layers=2)
    odd = F.pad(WEIGHTS[name], (0, 1))
    with pytest.raises(MossliveError, match="encoder"):
        Encoder.from_tensors(WEIGHTS | {name: odd}, HEADS, layers=2)


def test_dimensions_that_cannot_be() -> None:
    """Heads that do not divide the width, and positions that are no whole codes."""
    with pytest.raises(MossliveError, match="5 heads; allowed: divisors of 64"):
        Encoder.from_tensors(WEIGHTS, 5)
    with pytest.raises(MossliveError, match="6 positions; allowed: multiples of 4"):
        _with_positions(6)


def _with_positions(count: int) -> Encoder:
    """The golden encoder with a shorter position table, so with shorter segments."""
    table = WEIGHTS["encoder.embed_positions.weight"][:count]
    return Encoder.from_tensors(WEIGHTS | {"encoder.embed_positions.weight": table}, HEADS)
