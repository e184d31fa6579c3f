"""`generation_config.json`: the sampling settings of one checkpoint, read strictly.

Fields of the file replace the driver's settings. Absent fields keep the driver's value, because the
publishers' own programs never rely on the library's defaults. The ids that end a reply are not read
here: they come from `config.json` and the vocabulary. Raises `ConfigError` for a field that would
change sampling in a way this package does not compute; the message names the field, its value and
what is allowed.
"""

from dataclasses import replace
from typing import Any

from mosslive.config.files import ConfigError, refuse
from mosslive.config.sampling import Sampling

_RANDOM_ONLY = ("temperature", "top_k", "top_p")  # unused by greedy decoding
_FIELDS = {
    **{name: name for name in (*_RANDOM_ONLY, "repetition_penalty")},
    "max_new_tokens": "max_new",
    "min_new_tokens": "min_new",
}
# Fields of Hugging Face's tooling that change sampling, with the value at which they do nothing.
_NEUTRAL: dict[str, Any] = {
    "begin_suppress_tokens": None,
    "diversity_penalty": 0.0,
    "encoder_repetition_penalty": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "exponential_decay_length_penalty": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "guidance_scale": None,
    "length_penalty": 1.0,
    "min_p": None,
    "no_repeat_ngram_size": 0,
    "num_beams": 1,
    "num_return_sequences": 1,
    "penalty_alpha": None,
    "sequence_bias": None,
    "suppress_tokens": None,
    "typical_p": 1.0,
}
_BOOKKEEPING = frozenset(
    {
        "_from_model_config",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "transformers_version",
        "use_cache",
    }
)


def sampling_from(raw: dict[str, Any]) -> Sampling:
    """A parsed `generation_config.json` → settings. null means "not stated"."""
    stated = {name: value for name, value in raw.items() if value is not None}
    known = {"do_sample", *_FIELDS, *_NEUTRAL, *_BOOKKEEPING}
    for name, value in stated.items():
        if name not in known:
            raise ConfigError(
                f"{name} is {value!r}, but this version does not know the field and cannot tell "
                f"what it changes; remove it if it has no effect. Known fields: "
                f"{', '.join(sorted(known))}"
            )
        if name in _NEUTRAL and value != _NEUTRAL[name]:
            raise refuse(name, value, f"{_NEUTRAL[name]!r} (other values change sampling)")
    sampled = stated.get("do_sample", True)
    if not isinstance(sampled, bool):
        raise refuse("do_sample", sampled, "true or false")
    changes = {
        ours: stated[name]
        for name, ours in _FIELDS.items()
        if name in stated and (sampled or name not in _RANDOM_ONLY)
    }
    return replace(Sampling.driver(), greedy=not sampled, **changes)
