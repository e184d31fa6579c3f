"""Sound of callers and files: errors name the value and what is allowed."""

from pathlib import Path

import numpy as np
import pytest
import torch

from mosslive.codec.sound import BadSound, mono, read_sound


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (np.zeros((100, 0), np.float32), r"shape \[100, 0\]; allowed: \[samples, channels\], 1 to"),
        (np.zeros((2, 8000), np.float32), r"shape \[2, 8000\]; allowed"),
        (torch.zeros(100, device="meta"), "without memory or sparse; allowed: ordinary"),
        (torch.zeros(100).to_sparse(), "without memory or sparse; allowed: ordinary"),
        (np.array(["a"]), "sound of type <U1; allowed: floating point or int16"),
    ],
)
def test_invalid_sound_is_refused(given: object, said: str) -> None:
    """Bad input of any container type is an error that names it."""
    with pytest.raises(BadSound, match=said):
        mono(given)  # type: ignore[arg-type]


def test_the_first_channel_is_taken() -> None:
    """Of several channels the first is used, in any byte order and in int16 as in float."""
    both = np.array([[0.5, -1.0], [0.25, 1.0]])
    wanted = torch.tensor([0.5, 0.25])
    assert torch.equal(mono(both), wanted)
    assert torch.equal(mono(both.astype(">f8")), wanted)
    assert torch.equal(mono((both * 32768).clip(-32768, 32767).astype(np.int16)), wanted)


def test_a_folder_is_not_an_audio_file(tmp_path: Path) -> None:
    """The error is ours and says what is wrong; it is not that of a library."""
    with pytest.raises(BadSound, match="is a folder; allowed: a file of sound"):
        read_sound(tmp_path)
