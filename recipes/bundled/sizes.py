"""Sizes of each network of the bundled model, and the ids of its rows.

Knows the package's descriptions of the networks, not training. Invariant: networks built from a
`Sizes` load into the package without a special case; `TOY` differs from `BUNDLED` in numbers only,
so that a test at toy size runs the same code.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from mosslive.codec.conformer import ConformerDims
from mosslive.codec.encoder import EncoderDims
from mosslive.codec.estimator import EstimatorDims
from mosslive.codec.flow import FlowDims
from mosslive.codec.hift import HiftSettings
from mosslive.codec.hift.source import SourceSettings
from mosslive.config import ModelConfig

MEL_BANDS = 80
SPEAKER_WIDTH = 192
SIZES_FILE = "sizes.json"  # in a folder `carried`: which sizes its tensors have
# The pulse needs harmonics up to 12 kHz; above it they would alias. 40 · 300 Hz is the limit
# for the highest pitch of the assistant's voice.
HARMONICS = 40
_SOURCE = SourceSettings()

# The vocoder's shapes, which differ in their last stages. The product of the rates and the hop is
# always 480.
HIFT_SHAPES: dict[str, HiftSettings] = {
    "published": HiftSettings(channels=128, f0_channels=128, harmonics=HARMONICS, source=_SOURCE),
    # Half the last rate: spectra of 32 samples, 3000 a second.
    "mid": HiftSettings(
        channels=128,
        f0_channels=128,
        harmonics=HARMONICS,
        upsample_rates=(5, 4, 3),
        upsample_kernels=(11, 8, 7),
        n_fft=32,
        hop_samples=8,
        source=_SOURCE,
    ),
    # Two stages and spectra of 48 samples, 2000 a second: wide, short convolutions suit a CPU.
    "wide": HiftSettings(
        channels=160,
        f0_channels=128,
        harmonics=HARMONICS,
        upsample_rates=(8, 5),
        upsample_kernels=(16, 11),
        source_kernels=(7, 11),
        n_fft=48,
        hop_samples=12,
        source=_SOURCE,
    ),
}


@dataclass(frozen=True)
class Sizes:
    encoder: EncoderDims
    flow: FlowDims
    hift: HiftSettings
    lm_hidden: int
    lm_inner: int
    lm_shared: int
    lm_modality: int
    lm_heads: int
    lm_kv_heads: int
    lm_head_dim: int
    text_vocab: int
    context_rows: int = 8192
    # Strength of the classifier-free guidance; published: 0.7. A model of one voice does not need
    # it, and without it a step is one pass. Stored in flow/config.yaml, like the next field, so
    # both can be changed after training.
    guidance: float = 0.0
    # Of the solver; published: 10. For this voice two sound like six: docs/bundled-evaluation.md.
    steps: int = 2
    speaker: tuple[int, int] = field(default=(1, 4))  # CAM++: growth, first channels

    @property
    def codes(self) -> int:
        return self.encoder.codes

    def with_hift(self, shape: str) -> "Sizes":
        if shape not in HIFT_SHAPES:
            raise ValueError(f"vocoder shape {shape!r}; allowed: {', '.join(HIFT_SHAPES)}")
        return replace(self, hift=HIFT_SHAPES[shape])

    def lm_config(self, **ids: int) -> ModelConfig:
        """`ids` are those of the tokenizer, from `vocabulary.ids`."""
        fields: dict[str, Any] = {
            "vocab_size": self.text_vocab,
            # Whole steps of 128, with ids above the end of speech that are never legal; the first
            # of them stands for a code that was not heard, in training only.
            "audio_vocab_size": (self.codes // 128 + 1) * 128,
            "hidden_size": self.lm_hidden,
            "intermediate_size": self.lm_inner,
            "num_hidden_layers": self.lm_shared + self.lm_modality,
            "num_shared_layers": self.lm_shared,
            "num_modality_layers": self.lm_modality,
            "num_attention_heads": self.lm_heads,
            "num_key_value_heads": self.lm_kv_heads,
            "head_dim": self.lm_head_dim,
            "max_position_embeddings": self.context_rows,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1_000_000,
            "eosp_token_id": self.codes,
            "audio_pad_token_id": min(512, self.codes - 1),  # a legal code, as published
            "dtype": "float16",
        }
        return ModelConfig(**(fields | ids))


def _flow(width: int, heads: int, layers: int, codes: int, estimator: EstimatorDims) -> FlowDims:
    conformer = ConformerDims(width, heads, 4 * width, layers, layers)
    return FlowDims(codes, SPEAKER_WIDTH, conformer, estimator)


def _estimator(channels: int, heads: int, head_dim: int, middle: int) -> EstimatorDims:
    return EstimatorDims(
        bands=MEL_BANDS,
        inputs=4 * MEL_BANDS,
        channels=channels,
        time_hidden=2 * channels,
        inner=heads * head_dim,
        head_dim=head_dim,
        ffn=2 * channels,
        n_blocks=1,
        mid_blocks=middle,
    )


BUNDLED = Sizes(
    encoder=EncoderDims(128, 192, 3, 768, 6, 1500, 2048),
    flow=_flow(192, 3, 2, 2048, _estimator(96, 2, 32, 2)),
    hift=HIFT_SHAPES["wide"],
    lm_hidden=192,
    lm_inner=512,
    lm_shared=9,
    lm_modality=3,
    lm_heads=6,
    lm_kv_heads=2,
    lm_head_dim=32,
    text_vocab=384,
)

TOY = Sizes(
    encoder=EncoderDims(128, 32, 2, 64, 2, 1500, 64),
    flow=_flow(32, 2, 1, 64, _estimator(16, 2, 8, 1)),
    hift=replace(HIFT_SHAPES["wide"], channels=16, f0_channels=8, harmonics=10),
    lm_hidden=32,
    lm_inner=64,
    lm_shared=1,
    lm_modality=1,
    lm_heads=2,
    lm_kv_heads=1,
    lm_head_dim=16,
    text_vocab=384,
    context_rows=2048,
)
SIZES = {"bundled": BUNDLED, "toy": TOY}
