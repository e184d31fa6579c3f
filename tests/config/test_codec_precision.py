"""The names of the codec's precision, and the number types they stand for."""

import pytest

from mosslive.config import ConfigError
from mosslive.config.codec_precision import CodecPrecision, codec_precision

TYPES = {
    "float32": ("float32", "float32", "float32"),
    "fp32": ("float32", "float32", "float32"),
    "mixed": ("float32", "float16", "float16"),
    "fp16": ("float32", "float16", "float16"),
    "bf16": ("float32", "bfloat16", "float32"),
    "half": ("float16", "float16", "float16"),
}


@pytest.mark.parametrize("name", TYPES)
def test_each_name_means_three_types(name: str) -> None:
    """A name sets the types of encoder, flow and vocoder; the former names are still accepted."""
    for device in ("cpu", "cuda"):
        found = codec_precision(name, device)
        assert (found.encoder, found.flow, found.vocoder) == TYPES[name]


@pytest.mark.parametrize(
    ("device", "name"), [("cpu", "float32"), ("cuda", "mixed"), ("cuda:1", "mixed")]
)
def test_the_default_follows_the_device(device: str, name: str) -> None:
    """Exact on a CPU, the flow in float16 on any GPU."""
    assert codec_precision(None, device) == codec_precision(name, device)


def test_an_unknown_name_is_refused_with_those_allowed() -> None:
    """The error names the setting, the value and the allowed values."""
    with pytest.raises(ConfigError, match=r"codec_precision is 'int8'; allowed: float32 .*half"):
        codec_precision("int8", "cpu")


def test_options_are_arguments_of_load_codec() -> None:
    """Each type goes to the argument of its own network."""
    chosen = CodecPrecision("x", encoder="a", flow="b", vocoder="c")
    assert chosen.load_options() == {"dtype": "b", "encoder_dtype": "a", "vocoder_dtype": "c"}
