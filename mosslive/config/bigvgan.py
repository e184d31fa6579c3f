"""A BigVGAN generator's settings, read from the published `config.json`.

Knows nothing of torch or of tensors. Invariant: every `BigVganConfig` describes a generator that
this package computes exactly. Anything else raises `ConfigError` with the field, its value and what
is allowed.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from mosslive.config.files import ConfigError, read_json, refuse

# Fields that support a single value.
_ONLY = {"resblock": "1", "activation": "snakebeta"}
# Absent in older files; the published code then assumes true.
_OLDER_DEFAULTS = {"use_tanh_at_final": True, "use_bias_at_final": True}
# Discriminators, losses, optimiser, data loading: the generator does not depend on them.
_TRAINING = frozenset(
    {
        "batch_size",
        "clip_grad_norm",
        "discriminator_channel_mult",
        "dist_config",
        "fmax_for_loss",
        "freeze_step",
        "lambda_melloss",
        "learning_rate",
        "lr_decay",
        "normalize_volume",
        "num_freq",
        "num_gpus",
        "num_workers",
        "resolutions",
        "seed",
        "segment_size",
        "use_cqtd_instead_of_mrd",
        "use_mbd_instead_of_mrd",
        "use_multiscale_melloss",
        "use_spectral_norm",
    }
)
_TRAINING_PREFIXES = ("adam_", "cqtd_", "mbd_", "mpd_", "mrd_")


@dataclass(frozen=True)
class BigVganConfig:
    """Dimensions of one generator, and the mel it was trained on; names are the file's."""

    sampling_rate: int
    num_mels: int
    n_fft: int
    win_size: int
    hop_size: int  # samples per frame: the product of the rates
    fmin: float
    fmax: float | None  # None: half the sampling rate
    upsample_rates: tuple[int, ...]
    upsample_kernel_sizes: tuple[int, ...]
    upsample_initial_channel: int  # each stage halves it
    resblock_kernel_sizes: tuple[int, ...]
    resblock_dilation_sizes: tuple[tuple[int, ...], ...]  # one tuple per kernel size
    snake_logscale: bool
    use_tanh_at_final: bool
    use_bias_at_final: bool

    def __post_init__(self) -> None:
        for name in ("sampling_rate", "num_mels", "n_fft", "win_size", "hop_size"):
            _check_size(name, getattr(self, name))
        for name in ("snake_logscale", "use_tanh_at_final", "use_bias_at_final"):
            if not isinstance(getattr(self, name), bool):
                raise refuse(name, getattr(self, name), "true or false")
        highest = self.sampling_rate / 2
        _check_frequency("fmin", self.fmin, highest)
        if self.fmax is not None:
            _check_frequency("fmax", self.fmax, highest)
        self._check_stages()
        self._check_blocks()

    def _check_stages(self) -> None:
        rates, kernels = self.upsample_rates, self.upsample_kernel_sizes
        _check_sizes("upsample_rates", rates)
        _check_sizes("upsample_kernel_sizes", kernels)
        if len(kernels) != len(rates):
            raise refuse("upsample_kernel_sizes", kernels, f"{len(rates)} sizes, one per rate")
        for rate, kernel in zip(rates, kernels, strict=True):
            # Otherwise a stage returns one sample too many, not hop · frames.
            if kernel < rate or (kernel - rate) % 2:
                raise refuse("upsample_kernel_sizes", kernels, "each its rate plus an even number")
        if math.prod(rates) != self.hop_size:
            raise refuse(
                "upsample_rates", rates, f"rates whose product is hop_size, {self.hop_size}"
            )
        channels, parts = self.upsample_initial_channel, 2 ** len(rates)
        _check_size("upsample_initial_channel", channels)
        if channels % parts:
            allowed = f"a multiple of {parts}: each of the {len(rates)} stages halves it"
            raise refuse("upsample_initial_channel", channels, allowed)

    def _check_blocks(self) -> None:
        kernels, dilations = self.resblock_kernel_sizes, self.resblock_dilation_sizes
        _check_sizes("resblock_kernel_sizes", kernels)
        if not all(kernel % 2 for kernel in kernels):
            raise refuse("resblock_kernel_sizes", kernels, "odd sizes")
        if not isinstance(dilations, tuple) or len(dilations) != len(kernels):
            allowed = f"{len(kernels)} lists, one per resblock kernel"
            raise refuse("resblock_dilation_sizes", dilations, allowed)
        for each in dilations:
            _check_sizes("resblock_dilation_sizes", each)

    @property
    def channels(self) -> tuple[int, ...]:
        """Before the first stage, then after each."""
        stages = range(len(self.upsample_rates) + 1)
        return tuple(self.upsample_initial_channel >> stage for stage in stages)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> "BigVganConfig":
        """Checks a parsed `config.json`; raises `ConfigError` naming the first bad field."""
        wanted = [field.name for field in fields(cls)]
        known = {*wanted, *_ONLY, *_TRAINING}
        for name, value in raw.items():
            if name not in known and not name.startswith(_TRAINING_PREFIXES):
                raise ConfigError(
                    f"{name} is {value!r}, an unknown field that may change the sound; remove it "
                    f"if it does not. Known: {', '.join(sorted(known))}"
                )
        stated = {**_OLDER_DEFAULTS, **raw}
        for name in (*_ONLY, *wanted):
            if name not in stated:
                raise ConfigError(f"{name} is missing; it must be stated, there is no default")
        for name, only in _ONLY.items():
            if stated[name] != only:
                raise refuse(name, stated[name], f'"{only}"')
        return cls(**{name: _frozen(stated[name]) for name in wanted})

    @classmethod
    def from_file(cls, path: Path) -> "BigVganConfig":
        raw = read_json(path)
        try:
            return cls.from_dict(raw)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None


def _frozen(value: Any) -> Any:
    """Lists of JSON as tuples, nested ones too."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _check_size(name: str, value: object) -> None:
    if type(value) is not int or value < 1:  # a bool is an int, but not a size
        raise refuse(name, value, "an integer of at least 1")


def _check_sizes(name: str, values: object) -> None:
    if not isinstance(values, tuple) or not values:
        raise refuse(name, values, "a list of one integer or more")
    for value in values:
        _check_size(name, value)


def _check_frequency(name: str, value: object, highest: float) -> None:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not real or not 0 <= value <= highest:  # type: ignore[operator]
        raise refuse(name, value, f"0..{highest:g} Hz, half the sampling rate")
