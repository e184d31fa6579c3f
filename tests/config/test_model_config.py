"""`ModelConfig` accepts the published config.json and raises for every unsupported value.

`PUBLISHED` repeats the published file, so a changed table in the package fails a test.
"""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive.checkpoint.layout import expected_tensors
from mosslive.config import ConfigError, ModelConfig

SIZES: dict[str, int] = {
    "vocab_size": 151680,
    "audio_vocab_size": 16512,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_shared_layers": 32,
    "num_modality_layers": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
}
IDS: dict[str, int] = {
    "modality_pad_token_id": 151667,
    "sosp_token_id": 151646,
    "eosp_token_id": 16384,
    "eos_token_id": 151645,
}
REALS: dict[str, float] = {"rms_norm_eps": 1e-6, "rope_theta": 1000000}
REQUIRED = {**SIZES, **IDS, **REALS}
PUBLISHED: dict[str, Any] = {
    **REQUIRED,
    "architectures": ["MossSpeechForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "audio_pad_token_id": 512,
    "auto_map": {"AutoModel": "modeling_moss_speech.MossSpeechForCausalLM"},
    "channels": 2,
    "dtype": "bfloat16",
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "layer_types": ["full_attention"] * 36,
    "max_window_layers": None,
    "model_type": "moss_speech",
    "rope_scaling": None,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "transformers_version": "4.57.0.dev0",
    "use_cache": True,
    "use_sliding_window": False,
}

# (field, value, what the message must say is allowed)
UNSUPPORTED: list[tuple[str, Any, str]] = [
    ("architectures", ["Qwen3ForCausalLM"], "MossSpeechForCausalLM"),
    ("architectures", [], "MossSpeechForCausalLM"),
    ("model_type", "qwen3", "moss_speech"),
    ("channels", 1, "2"),
    ("channels", 9, "2"),
    ("channels", True, "2"),
    ("hidden_act", "gelu", "silu"),
    ("attention_bias", True, "false"),
    ("attention_bias", 0, "false"),
    ("mlp_bias", True, "false"),
    ("tie_word_embeddings", True, "false"),
    ("rope_scaling", {"rope_type": "yarn", "factor": 4.0}, "null"),
    ("use_sliding_window", True, "false"),
    ("use_sliding_window", None, "false"),
    ("sliding_window", 4096, "null"),
    ("layer_types", ["sliding_attention"] + ["full_attention"] * 35, "full_attention"),
    ("layer_types", ["full_attention"] * 40, "36"),
    ("num_hidden_layers", 40, "32 + 4"),
    ("num_attention_heads", 30, "multiple of num_key_value_heads = 8"),
    ("head_dim", 127, "even"),
    ("dtype", "int8", "bfloat16, float16, float32"),
    ("torch_dtype", "float32", "the same value"),
    ("modality_pad_token_id", 151680, "0..151679"),
    ("sosp_token_id", 151680, "0..151679"),
    ("eos_token_id", 200000, "0..151679"),
    ("pad_token_id", 151680, "0..151679"),
    ("eosp_token_id", 16512, "0..16511"),
    ("eosp_token_id", 0, "1 or more"),
    ("audio_pad_token_id", 16512, "0..16511"),
    ("sosp_token_id", 151645, "three different ids"),
]


def changed(**changes: Any) -> dict[str, Any]:
    return PUBLISHED | changes


def error_of(raw: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        ModelConfig.from_dict(raw)
    return str(caught.value)


@st.composite
def configs(draw: st.DrawFn) -> ModelConfig:
    """Any model of this family, not only the published one."""
    shared, modality = draw(st.integers(1, 40)), draw(st.integers(1, 8))
    kv_heads = draw(st.integers(1, 8))
    text_size, audio_size = draw(st.integers(8, 200_000)), draw(st.integers(2, 20_000))
    text_id, audio_id = st.integers(0, text_size - 1), st.integers(0, audio_size - 1)
    pad, start, end = draw(st.lists(text_id, min_size=3, max_size=3, unique=True))
    eosp = draw(st.integers(1, audio_size - 1))
    positive = st.floats(1e-9, 1e9)
    return ModelConfig(
        vocab_size=text_size,
        audio_vocab_size=audio_size,
        hidden_size=draw(st.integers(1, 8192)),
        intermediate_size=draw(st.integers(1, 20_000)),
        num_hidden_layers=shared + modality,
        num_shared_layers=shared,
        num_modality_layers=modality,
        num_attention_heads=kv_heads * draw(st.integers(1, 8)),
        num_key_value_heads=kv_heads,
        head_dim=2 * draw(st.integers(1, 128)),
        max_position_embeddings=draw(st.integers(1, 10**6)),
        rms_norm_eps=draw(positive),
        rope_theta=draw(positive),
        modality_pad_token_id=pad,
        sosp_token_id=start,
        eosp_token_id=eosp,
        eos_token_id=end,
        audio_pad_token_id=draw(audio_id.filter(lambda index: index != eosp)),
        pad_token_id=draw(st.none() | text_id.filter(lambda index: index != pad)),
        dtype=draw(st.sampled_from(["bfloat16", "float16", "float32"])),
    )


def test_published_config_is_accepted_with_every_value() -> None:
    """Every value of the published file is kept; no default replaces one."""
    config = ModelConfig.from_dict(PUBLISHED)
    expected = REQUIRED | {"audio_pad_token_id": 512, "pad_token_id": None, "dtype": "bfloat16"}
    assert dataclasses.asdict(config) == expected
    assert (config.layers, config.codes) == (40, 16384)


def test_a_repeated_field_raises(tmp_path: Path) -> None:
    """A field that appears twice is an error; plain JSON readers silently keep the last one."""
    text = json.dumps(PUBLISHED)[:-1] + ', "rope_theta": 10000.0}'
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match="rope_theta appears twice"):
        ModelConfig.from_file(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("audio_pad_token_id", 16384, "any id but eosp_token_id"),
        ("max_position_embeddings", 10**9, "at most 1048576"),
    ],
)
def test_values_that_cannot_work_raise(field: str, value: int, allowed: str) -> None:
    """Values that contradict each other, or exceed any machine, are errors."""
    with pytest.raises(ConfigError, match=f"{field} is {value}; allowed: {allowed}"):
        ModelConfig.from_dict(PUBLISHED | {field: value})


def test_pad_and_modality_pad_must_differ() -> None:
    """The pad id ends a reply, so it must not be the text id of every speech row."""
    with pytest.raises(ConfigError, match="pad_token_id is 151667; allowed: any id but"):
        ModelConfig.from_dict(PUBLISHED | {"pad_token_id": 151667})


def test_published_config_is_read_from_its_file(tmp_path: Path) -> None:
    """The file and the dictionary give the same config."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(PUBLISHED), encoding="utf-8")
    assert ModelConfig.from_file(path) == ModelConfig.from_dict(PUBLISHED)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_window_layers", 28),
        ("bos_token_id", 151643),
        ("attention_dropout", 0.1),
        ("layer_types", None),
        ("_name_or_path", "x"),
        ("torch_dtype", "bfloat16"),
        ("audio_pad_token_id", None),
    ],
)
def test_fields_that_change_nothing_are_accepted(name: str, value: Any) -> None:
    """Bookkeeping fields of Hugging Face tooling are accepted and ignored."""
    assert ModelConfig.from_dict(changed(**{name: value})) == ModelConfig.from_dict(PUBLISHED)


@pytest.mark.parametrize(("name", "value", "allowed"), UNSUPPORTED)
def test_unsupported_values_raise(name: str, value: Any, allowed: str) -> None:
    """An unsupported value is an error that names the field, the value and what is allowed."""
    message = error_of(changed(**{name: value}))
    stated, _, rest = message.partition("; allowed: ")
    assert name in stated
    assert repr(value) in stated
    assert allowed in rest


@pytest.mark.parametrize("value", [True, "4096", 4096.0, math.nan, math.inf, None, [4096], 0, -1])
@pytest.mark.parametrize("name", SIZES)
def test_size_must_be_a_positive_integer(name: str, value: Any) -> None:
    """A boolean, a string, NaN or a fraction is never read as a size."""
    message = error_of(changed(**{name: value}))
    assert message == f"{name} is {value!r}; allowed: an integer of at least 1"


@pytest.mark.parametrize("value", [True, "512", 512.0, math.nan, [512], -1])
@pytest.mark.parametrize("name", [*IDS, "audio_pad_token_id", "pad_token_id"])
def test_token_id_must_be_an_integer(name: str, value: Any) -> None:
    """A boolean, a string, NaN or a list is never read as a token id."""
    message = error_of(changed(**{name: value}))
    assert message == f"{name} is {value!r}; allowed: an integer of at least 0"


@pytest.mark.parametrize(
    "value", [True, "1e-6", math.nan, math.inf, None, 0, -1.0, pytest.param(10**400, id="huge")]
)
@pytest.mark.parametrize("name", REALS)
def test_real_must_be_a_positive_number(name: str, value: Any) -> None:
    """A boolean, a string, NaN or a number beyond every float is never read as a real."""
    message = error_of(changed(**{name: value}))
    assert message == f"{name} is {value!r}; allowed: a positive number"


@pytest.mark.parametrize("name", REQUIRED)
def test_missing_field_raises(name: str) -> None:
    """Sizes, reals and ids have no defaults."""
    raw = {key: value for key, value in PUBLISHED.items() if key != name}
    assert error_of(raw).startswith(f"{name} is missing")


@pytest.mark.parametrize(
    ("name", "class_default"), [("rope_theta", 10000.0), ("modality_pad_token_id", 0)]
)
def test_wrong_published_class_defaults_are_not_used(name: str, class_default: float) -> None:
    """The published class has wrong defaults for these fields, so they are required here."""
    fields = {field.name: field for field in dataclasses.fields(ModelConfig)}
    assert fields[name].default is dataclasses.MISSING
    stated = ModelConfig.from_dict(changed(**{name: class_default}))
    assert getattr(stated, name) == class_default  # a legal value: only its absence is an error
    with pytest.raises(ConfigError, match=f"^{name} is missing"):
        ModelConfig.from_dict({k: v for k, v in PUBLISHED.items() if k != name})


@pytest.mark.parametrize(
    ("name", "expected"), [("audio_pad_token_id", 512), ("pad_token_id", None)]
)
def test_absent_optional_id(name: str, expected: int | None) -> None:
    """An absent audio pad is the processor's constant 512; an absent pad id stays None."""
    raw = {key: value for key, value in PUBLISHED.items() if key != name}
    assert getattr(ModelConfig.from_dict(raw), name) == expected


def test_absent_audio_pad_must_fit_the_vocabulary() -> None:
    """The default audio pad 512 is checked against the vocabulary like a stated one."""
    raw = changed(audio_vocab_size=400, eosp_token_id=300)
    del raw["audio_pad_token_id"]
    assert error_of(raw) == "audio_pad_token_id is 512; allowed: 0..399 (audio_vocab_size is 400)"


def test_unknown_field_raises() -> None:
    """An unknown field may change the computation, so it is an error, never ignored."""
    message = error_of(changed(quantization_config={"bits": 4}))
    assert message.startswith("quantization_config is {'bits': 4}, but this version")
    assert "Known fields: " in message
    assert "rope_theta" in message


def test_torch_dtype_is_the_older_name_of_dtype() -> None:
    """`torch_dtype`, the older name of `dtype`, is accepted."""
    raw = changed(torch_dtype="float16")
    del raw["dtype"]
    assert ModelConfig.from_dict(raw).dtype == "float16"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"not json", "not readable as JSON"),
        (b'{"vocab_size": 1', "not readable as JSON"),
        (b"", "not readable as JSON"),
        (b"\xff\xfe\x00", "not readable as JSON"),
        (b"[1, 2]", "contains a list; allowed: a JSON object"),
        (b"null", "contains a NoneType; allowed: a JSON object"),
        (json.dumps(PUBLISHED | {"vocab_size": math.nan}).encode(), "vocab_size is nan; allowed"),
        pytest.param(b"[" * 100_000, "not readable as JSON", id="deeply nested"),
    ],
)
def test_bad_file_raises(tmp_path: Path, content: bytes, said: str) -> None:
    """Any unreadable file raises `ConfigError` and is named in the message."""
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        ModelConfig.from_file(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)


def test_missing_file_and_folder_raise(tmp_path: Path) -> None:
    """A wrong path raises `ConfigError`, not a library's error."""
    with pytest.raises(ConfigError, match="no such file; a model folder needs"):
        ModelConfig.from_file(tmp_path / "config.json")
    with pytest.raises(ConfigError, match="not readable"):
        ModelConfig.from_file(tmp_path)


@settings(derandomize=True, deadline=None)
@given(configs())
def test_round_trip(config: ModelConfig) -> None:
    """`from_dict(to_dict())` is the same config, also through JSON text."""
    assert ModelConfig.from_dict(config.to_dict()) == config
    assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_published_layout_is_written() -> None:
    """`to_dict` writes every field of the published file with its value."""
    written = ModelConfig.from_dict(PUBLISHED).to_dict()
    assert {k: written.get(k) for k in PUBLISHED if k != "auto_map"} == {
        k: v for k, v in PUBLISHED.items() if k != "auto_map"
    }


def test_written_dictionary_is_the_callers_own() -> None:
    """Each call of `to_dict` returns its own lists, so callers may change them."""
    config = ModelConfig.from_dict(PUBLISHED)
    first, second = config.to_dict(), config.to_dict()
    shared = [name for name in first if type(first[name]) is list and first[name] is second[name]]
    assert shared == []


def test_config_cannot_be_changed() -> None:
    """A checked config is immutable."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        ModelConfig.from_dict(PUBLISHED).rope_theta = 10000.0  # type: ignore[misc]


def test_published_tensors() -> None:
    """The published config gives 446 tensors with the published names, shapes and total size."""
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm": (4096,),
        "self_attn.q_proj": (4096, 4096),
        "self_attn.k_proj": (1024, 4096),
        "self_attn.v_proj": (1024, 4096),
        "self_attn.o_proj": (4096, 4096),
        "self_attn.q_norm": (128,),
        "self_attn.k_norm": (128,),
        "post_attention_layernorm": (4096,),
        "mlp.gate_proj": (12288, 4096),
        "mlp.up_proj": (12288, 4096),
        "mlp.down_proj": (4096, 12288),
    }
    published: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (151680, 4096),
        "model.audio_embed.weight": (16512, 4096),
        "model.text_norm.weight": (4096,),
        "model.audio_norm.weight": (4096,),
        "text_lm_head.weight": (151680, 4096),
        "audio_lm_head.weight": (16512, 4096),
    }
    for block, count in (("shared", 32), ("text", 4), ("audio", 4)):
        for index in range(count):
            prefix = f"model.{block}_block.layers.{index}"
            published |= {f"{prefix}.{name}.weight": shape for name, shape in layer.items()}
    expected = expected_tensors(ModelConfig.from_dict(PUBLISHED))
    assert expected == published
    assert len(expected) == 446
    parameters = sum(math.prod(shape) for shape in expected.values())
    assert parameters == 9_095_694_336
    assert 2 * parameters == 18_191_388_672  # bytes in bf16
