"""`generation_config.json`: how replies of one checkpoint are to be drawn, read strictly.

What the file states replaces the driver's settings; what it does not state stays theirs, because
the publishers' own programs never rely on the library's defaults. Where a reply ends is not read
here: `config.json` and the vocabulary say it. Invariant: a file that would change a draw in a way
this package does not compute is refused, by field, value and what is allowed.
"""

from dataclasses import replace
from typing import Any

from mosslive.config.files import ConfigError, refuse
from mosslive.config.sampling import Sampling

_DRAWN = ("temperature", "top_k", "top_p")  # unused by who takes the most likely row
_FIELDS = {
    **{name: name for name in (*_DRAWN, "repetition_penalty")},
    "max_new_tokens": "max_new",
    "min_new_tokens": "min_new",
}
# Fields of Hugging Face's tooling that would change a draw, with the value at which they do not.
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
    """A parsed `generation_config.json` → settings; null means "not stated"."""
    stated = {name: value for name, value in raw.items() if value is not None}
    known = {"do_sample", *_FIELDS, *_NEUTRAL, *_BOOKKEEPING}
    for name, value in stated.items():
        if name not in known:
            raise ConfigError(
                f"{name} is {value!r}, a field this version does not know, so it cannot tell what "
                f"it changes; remove it if it is only a note. Known: {', '.join(sorted(known))}"
            )
        if name in _NEUTRAL and value != _NEUTRAL[name]:
            raise refuse(name, value, f"{_NEUTRAL[name]!r} (it would change what is drawn)")
    draws = stated.get("do_sample", True)
    if not isinstance(draws, bool):
        raise refuse("do_sample", draws, "true or false")
    changes = {
        ours: stated[name]
        for name, ours in _FIELDS.items()
        if name in stated and (draws or name not in _DRAWN)
    }
    return replace(Sampling.driver(), greedy=not draws, **changes)
