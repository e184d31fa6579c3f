"""Precision of the codec as one setting: `float32`, `mixed` or `half`, and its number types.

The same names and defaults in `serve`, `chat`, `codec` and `bench talk`. Names of types only: knows
neither torch nor the networks. docs/codec.md has the measurements behind the defaults.
"""

from dataclasses import dataclass
from typing import Any

from mosslive.config.files import refuse

_FLOAT32, _FLOAT16 = "float32", "float16"


@dataclass(frozen=True)
class CodecPrecision:
    """Types of the products of each network; sums, norms, pitch and mel are float32 in any case."""

    name: str
    encoder: str = _FLOAT32
    flow: str = _FLOAT32  # of its estimator in live replies, and of its stored keys and values
    vocoder: str = _FLOAT32

    def load_options(self) -> dict[str, Any]:
        """The arguments of `load_codec`."""
        return {
            "dtype": self.flow,
            "encoder_dtype": self.encoder,
            "vocoder_dtype": self.vocoder,
        }


_BY_NAME = {
    one.name: one
    for one in (
        CodecPrecision("float32"),
        CodecPrecision("mixed", flow=_FLOAT16, vocoder=_FLOAT16),
        CodecPrecision("half", _FLOAT16, _FLOAT16, _FLOAT16),
        CodecPrecision("bf16", flow="bfloat16"),
    )
}
_BY_NAME |= {"fp32": _BY_NAME["float32"], "fp16": _BY_NAME["mixed"]}
ALLOWED = "float32 (or fp32), mixed (or fp16), half, bf16"
HELP = (
    "Compute the codec in float32 (exact), mixed (encoder float32, the rest float16), half (all of "
    "it float16) or bf16 (flow in bfloat16, the rest float32)"
)


def codec_precision(name: str | None, device: str) -> CodecPrecision:
    """`name` None: the default of the device, `float32` on a CPU and `mixed` on a GPU. Raises
    `ConfigError` for an unknown name."""
    if name is None:
        name = "float32" if device == "cpu" else "mixed"
    if name not in _BY_NAME:
        raise refuse("codec_precision", name, ALLOWED)
    return _BY_NAME[name]
