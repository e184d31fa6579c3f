"""What lower precision does to codes and sound."""

from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from mosslive.bench.codec.precision_effect import RoundedProducts, sound_rows
from mosslive.codec import load_codec, read_sound
from mosslive.codec.encoder import Encoder
from mosslive.config.folders import shipped_folder

GOLDEN = load_file(Path(__file__).parents[2] / "golden" / "whisper_vq.safetensors")


def test_products_have_rounded_operands_and_results() -> None:
    """Products see and return values of the lower type; other operations are not touched."""
    x, weight = torch.tensor([[1.0, 2.0**-12]]), torch.tensor([[1.0, 1.0]])
    with RoundedProducts(torch.bfloat16):
        assert F.linear(x, weight).item() == 1.0
        assert (x + 2.0**-12)[0, 0].item() == 1 + 2.0**-12
    assert F.linear(x, weight).item() == 1 + 2.0**-12


@pytest.mark.parametrize(("dtype", "most"), [(torch.float16, 0), (torch.bfloat16, 1)])
def test_codes_of_the_public_encoder_hardly_flip(dtype: torch.dtype, most: int) -> None:
    """Of 64 golden codes float16 flips none and bfloat16 at most one."""
    weights = {name[2:]: tensor for name, tensor in GOLDEN.items() if name.startswith("w.")}
    encoder, flipped = Encoder.from_tensors(weights, 4), 0
    for case in ("", "_random"):
        with RoundedProducts(dtype):
            states = encoder(GOLDEN[f"io.feat{case}"][None])[0]
        flipped += int((encoder.quantise(states) != GOLDEN[f"io.codes{case}"]).sum())
    assert flipped <= most


def test_half_precision_moves_the_sound_less_than_another_seed() -> None:
    """On the bundled codec float16 moves the sound less than another seed of the vocoder's noise,
    and bfloat16 in the flow moves it more; docs/codec.md has the numbers."""
    home = shipped_folder()
    load = partial(load_codec, home / "codec", trace_cpu_steps=False)
    voice = home / "voices" / "default.voice"
    sound = read_sound(home / "question.flac")
    codes = load().encode(sound.wave, sound.rate_hz)[:13]
    mel = {row.what: row.mel_db for row in sound_rows(load, voice, [codes])}
    assert mel["flow float16"] < mel["another seed"] < mel["flow bfloat16"]
    assert mel["HiFT float16"] < mel["another seed"]
