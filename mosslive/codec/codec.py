"""The published codec as a library: encode sound, prepare voices, decode codes.

One object per codec folder and device. Networks are loaded when first needed: encoding alone never
reads the flow. Not safe for use from several threads at once.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from mosslive.checkpoint.codec import CodecFiles, FlowProfile
from mosslive.codec.conformer import FRAMES_PER_TOKEN
from mosslive.codec.decoder_batch import DecoderBatch
from mosslive.codec.decoder_stream import DecoderStream
from mosslive.codec.device import COMPUTE, check_device
from mosslive.codec.encoder import Encoder
from mosslive.codec.encoder_batch import EncoderBatch
from mosslive.codec.encoder_pages import POOL_SECONDS as HEARING_SECONDS
from mosslive.codec.encoder_pages import page_bytes, pages_for
from mosslive.codec.encoder_stream import EncoderStream, HeardTurn
from mosslive.codec.flow import Flow, FlowVoice
from mosslive.codec.flow_memory import reply_second_bytes
from mosslive.codec.flow_solver import NOISE_FRAMES, FlowSettings
from mosslive.codec.flow_stream import (
    POOL_SECONDS,
    FlowState,
    FlowStream,
    StreamSettings,
    TailRule,
    check_tail,
)
from mosslive.codec.mel import FLOW_MEL, HEARING_HZ, log_mel
from mosslive.codec.mel_source import CachedMel, MelSource, Method, PrefixMel
from mosslive.codec.resample import ResampleStream, resample
from mosslive.codec.sound import BadSound, Pcm, Sound, check_rate, mono, read_sound
from mosslive.codec.speaker import SpeakerEncoder
from mosslive.codec.vocoder import Vocoder
from mosslive.codec.vocoder_files import HiftFiles, VocoderFiles, open_bigvgan_folder
from mosslive.codec.voice import Voice, aligned, another_codec
from mosslive.config import SECONDS_PER_CODE, refuse
from mosslive.config.files import is_positive_number
from mosslive.errors import NotFinite
from mosslive.kernels.arithmetic import arithmetic

_PROFILES: dict[int, FlowProfile] = {5: "chunk-5", 25: "chunk-25"}
_MOST_PROMPT_SECONDS = SECONDS_PER_CODE * NOISE_FRAMES // FRAMES_PER_TOKEN
_MOST_SEED = 2**63 - 1


def load_codec(
    path: str | Path,
    device: str = "cpu",
    dtype: str = "float32",
    pool_seconds: float = POOL_SECONDS,
    vocoder: str | Path | None = None,
    *,
    encoder_dtype: str = "float32",
    vocoder_dtype: str = "float32",
    hearing_seconds: float | None = None,
    trace_cpu_steps: bool = True,
) -> "Codec":
    """Reads a codec folder in the published layout; networks are loaded when they are needed.

    `dtype`: of the products of the flow's estimator in live replies, and of its stored keys and
    values; sums, norms, the flow's encoder and everything else are float32. `encoder_dtype`:
    of the encoder's products, keys and values; half precision changes some codes. `vocoder_dtype`:
    of the vocoder's convolutions; pitch and source are float32. `pool_seconds`: speech that all
    live replies and prompts together can store. `vocoder`: a BigVGAN folder that was trained on the
    flow's mel, in place of the folder's HiFT; raises `ConfigError` at once if its mel is another.
    `trace_cpu_steps`: on a CPU, the first live reply records its steps, which takes seconds, and
    all further steps run without Python. False: every step runs in Python, slower.
    `hearing_seconds`: speech that all turns of `encoder_batch` together can store.
    """
    dtypes = {"dtype": dtype, "encoder_dtype": encoder_dtype, "vocoder_dtype": vocoder_dtype}
    for name, given in dtypes.items():
        if given not in COMPUTE:
            raise refuse(name, given, ", ".join(COMPUTE))
    if not is_positive_number(pool_seconds):
        raise refuse("pool_seconds", pool_seconds, "above 0")
    if hearing_seconds is not None and not is_positive_number(hearing_seconds):
        raise refuse("hearing_seconds", hearing_seconds, "above 0")
    return Codec(
        CodecFiles(path),
        check_device(device),
        COMPUTE[dtype],
        pool_seconds,
        vocoder,
        trace_cpu_steps=trace_cpu_steps,
        encoder_dtype=COMPUTE[encoder_dtype],
        hearing_seconds=hearing_seconds,
        vocoder_dtype=vocoder_dtype,
    )


def flow_settings(files: CodecFiles) -> FlowSettings:
    config = files.decoder
    return FlowSettings(config.steps, config.guidance, code_limit=files.encoder.codes)


def _profile(chunk: int) -> FlowProfile:
    if type(chunk) is not int or chunk not in _PROFILES:
        raise refuse("chunk", chunk, ", ".join(map(str, _PROFILES)))
    return _PROFILES[chunk]


class HearingStream:
    """Microphone sound at any rate → codes. `finish` returns what `EncoderStream.finish` does."""

    def __init__(self, encoder: Encoder, rate_hz: int) -> None:
        self._resampler = ResampleStream(rate_hz, HEARING_HZ)
        self._stream = EncoderStream(encoder)

    def push(self, pcm: Pcm) -> list[int]:
        with arithmetic("fp32"):
            return self._stream.push(self._resampler.push(mono(pcm)))

    def finish(self) -> HeardTurn:
        with arithmetic("fp32"):
            last = self._stream.push(self._resampler.finish())
            turn = self._stream.finish()
        return HeardTurn(last + turn.rest, turn.codes, turn.first_revised)


class Codec:
    def __init__(
        self,
        files: CodecFiles,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        pool_seconds: float = POOL_SECONDS,
        vocoder: str | Path | None = None,
        *,
        trace_cpu_steps: bool = True,
        encoder_dtype: torch.dtype = torch.float32,
        hearing_seconds: float | None = None,
        vocoder_dtype: str = "float32",
    ) -> None:
        self._vocoder_files: VocoderFiles = (
            HiftFiles(files, COMPUTE[vocoder_dtype])
            if vocoder is None
            else open_bigvgan_folder(vocoder, vocoder_dtype)
        )
        self.files = files
        self.device = device
        self.dtype, self._pool_seconds = dtype, pool_seconds
        self._trace_cpu_steps = trace_cpu_steps
        self.encoder_dtype, self._hearing_seconds = encoder_dtype, hearing_seconds
        self.sample_rate = files.decoder.sample_rate
        self._flows: dict[str, Flow] = {}  # by file; profiles may share a file
        self._streams: dict[StreamSettings, FlowStream] = {}
        # Prompt caches by voice; freed with the voice.
        self._opened: WeakKeyDictionary[Voice, dict[tuple[int, StreamSettings], FlowState]]
        self._opened = WeakKeyDictionary()

    @cached_property
    def fingerprint(self) -> str:
        """Identifies the codec that made a voice: a hash of its encoder and speaker network."""
        digest = hashlib.sha256(self.files.speaker_path.read_bytes())
        digest.update(self._encoder.codebook.weight.cpu().numpy().tobytes())
        return digest.hexdigest()[:16]

    # Hearing

    def encode(
        self, pcm: Pcm, sample_rate: int, heard: Callable[[int], None] | None = None
    ) -> list[int]:
        """One code per 80 ms. Of several channels ([n, channels]) the first is used. heard: is
        called with the number of codes of each 30 s."""
        wave = resample(mono(pcm), check_rate(sample_rate), HEARING_HZ)
        if not len(wave):
            raise BadSound("the sound is empty; at least one sample is needed")
        with arithmetic("fp32"):
            codes: list[int] = self._encoder.encode(wave.to(self.device), heard).tolist()
        return codes

    @property
    def hearing_bytes(self) -> int:
        """Memory of `encoder_batch` for all turns together."""
        seconds = HEARING_SECONDS if self._hearing_seconds is None else self._hearing_seconds
        return pages_for(self._encoder, seconds) * page_bytes(self._encoder)

    def encoder_stream(self, sample_rate: int) -> HearingStream:
        """One turn, in memory of its own; `encoder_batch` is for many."""
        return HearingStream(self._encoder, check_rate(sample_rate))

    def encoder_batch(self) -> EncoderBatch:
        """All turns that are being heard, encoded in common steps; one object for each codec."""
        return self._encoder_batch

    # Voices

    def voice(self, source: str | Path | Sound) -> Voice:
        """From a recording (file or samples with their rate), or a `.voice` file of this codec."""
        if not isinstance(source, Sound):
            if Path(source).suffix == ".voice":
                return Voice.load(source, self.fingerprint)
            return self._prepared(read_sound(source), Path(source).stem)
        return self._prepared(Sound(mono(source.wave), check_rate(source.rate_hz)), "")

    def _prepared(self, sound: Sound, name: str) -> Voice:
        seconds = len(sound.wave) / sound.rate_hz
        if seconds >= _MOST_PROMPT_SECONDS:
            raise BadSound(
                f"a voice of {seconds:g} s leaves no time for a reply; allowed: less than "
                f"{_MOST_PROMPT_SECONDS:g} s; a few seconds are enough"
            )
        wave = resample(*sound, FLOW_MEL.sample_rate_hz)
        # First, because it raises for short recordings.
        speaker = self._speaker.vector(resample(wave, FLOW_MEL.sample_rate_hz, HEARING_HZ))
        mel = log_mel(wave, FLOW_MEL).T  # [frames, bands]
        # From the original rate: resampling to 24 kHz first changes some codes.
        with arithmetic("fp32"):
            codes = self._encoder.encode(resample(*sound, HEARING_HZ).to(self.device)).cpu()
        count = min(len(codes), len(mel) // FRAMES_PER_TOKEN)
        prompt = FlowVoice(codes[:count], mel[: FRAMES_PER_TOKEN * count], speaker)
        return Voice(prompt, self.fingerprint, name)

    # Speaking

    def decode(self, codes: Sequence[int], voice: Voice, seed: int = 0) -> NDArray[np.float32]:
        """A whole reply → float32 [1920 · n] at `sample_rate`. `seed`: of the vocoder's noise.
        Raises `NotFinite` if the networks compute no finite numbers."""
        self._require_own(voice)
        generator = self._generator(seed)
        with arithmetic("fp32"):
            mel = self._flow("offline").mel_offline(codes, voice.prompt)
            wave = self._vocoder.whole(mel, generator)
        samples: NDArray[np.float32] = wave.cpu().numpy()
        if not np.isfinite(samples).all():
            raise NotFinite("the codec computed values that are not finite numbers")
        return samples

    def decoder_stream(
        self,
        voice: Voice,
        chunk: int = 5,
        *,
        method: Method = "cached",
        tail: TailRule = "reference",
        window_frames: int | None = None,
        align: bool = True,
        seed: int = 0,
        pool_seconds: float | None = None,
    ) -> DecoderStream:
        """A live reply, rendered `chunk` codes at a time while its codes come.

        `method`: see `mel_source`. `tail`: how the last piece of a cached stream is rendered.
        `window_frames` bounds the memory of long replies and changes the sound. `align` cuts the
        prompt to whole chunks, so that the first sound comes after chunk + 3 codes.
        `pool_seconds`: uses a pool of this size instead of the codec's, shared by all replies with
        the same number.
        """
        self._require_own(voice)
        flow = self._flow(_profile(chunk))
        source: MelSource
        if method == "prefix":
            prompt = aligned(voice.prompt, chunk) if align else voice.prompt
            source, count = PrefixMel(flow, prompt, chunk), len(prompt.prompt_codes)
        elif method == "cached":
            with arithmetic("fp32"):
                source, count = self._cached(voice, chunk, tail, window_frames, align, pool_seconds)
        else:
            raise refuse("method", method, "cached, prefix")
        return DecoderStream(source, self._vocoder, count, chunk, self._generator(seed))

    def decoder_batch(
        self,
        chunk: int = 5,
        *,
        tail: TailRule = "reference",
        window_frames: int | None = None,
        align: bool = True,
    ) -> DecoderBatch:
        """Many live replies, rendered together, each in its own voice and at its own point; see
        `decoder_stream` for the settings."""
        _profile(chunk)
        check_tail(tail)

        def begin(voice: Voice, seed: int) -> tuple[MelSource, int, torch.Generator]:
            self._require_own(voice)
            generator = self._generator(seed)
            return *self._cached(voice, chunk, tail, window_frames, align), generator

        def prepared(voice: Voice) -> bool:
            return any(kept.chunk == chunk for _, kept in self._opened.get(voice, {}))

        return DecoderBatch(self._vocoder, chunk, begin, prepared)

    def second_bytes(self, chunk: int = 5) -> int:
        """Memory of one second of live replies in the pool. Loads the flow."""
        return reply_second_bytes(self._flow(_profile(chunk)), chunk, self.dtype)

    def size_pool(self, seconds: float) -> None:
        """Replies that start from now on share a pool of this size; call it before the first."""
        if not is_positive_number(seconds):
            raise refuse("pool_seconds", seconds, "above 0")
        self._pool_seconds = seconds

    def delay_codes(self, chunk: int = 5) -> int:
        """Codes that a live reply needs before its first sound, beyond its first chunk: the whole
        chunks that its vocoder looks ahead. 0 for HiFT."""
        frames = FRAMES_PER_TOKEN * chunk
        return chunk * (self._vocoder_files.delay_frames // frames)

    def _cached(
        self,
        voice: Voice,
        chunk: int,
        tail: TailRule,
        window_frames: int | None,
        align: bool,
        pool_seconds: float | None = None,
    ) -> tuple[MelSource, int]:
        """The mel source of a new reply, and the length of its prompt in codes."""
        prompt = aligned(voice.prompt, chunk) if align else voice.prompt
        seconds = self._pool_seconds if pool_seconds is None else pool_seconds
        settings = StreamSettings(chunk, window_frames, seconds, self.dtype, self._trace_cpu_steps)
        stream = self._stream(settings)
        source = CachedMel(stream, self._open_voice(stream, voice, prompt), tail)
        return source, len(prompt.prompt_codes)

    def _stream(self, settings: StreamSettings) -> FlowStream:
        """All replies of these settings share one pool and one set of recorded steps."""
        if settings not in self._streams:
            flow = self._flow(_profile(settings.chunk))
            self._streams[settings] = FlowStream(flow, settings)
        return self._streams[settings]

    def _open_voice(self, stream: FlowStream, voice: Voice, prompt: FlowVoice) -> FlowState:
        """The prompt's caches, computed once per voice and shared by all its replies."""
        kept = self._opened.setdefault(voice, {})
        key = (len(prompt.prompt_codes), stream.settings)
        if key not in kept:
            kept[key] = stream.open(prompt)
        return kept[key]

    def _require_own(self, voice: Voice) -> None:
        if voice.codec != self.fingerprint:
            raise another_codec(f"the voice {voice.name!r}", voice.codec, self.fingerprint)

    def _generator(self, seed: int) -> torch.Generator:
        if not 0 <= seed <= _MOST_SEED:
            raise refuse("seed", seed, f"0..{_MOST_SEED}")
        return torch.Generator(self.device).manual_seed(seed)

    @cached_property
    def _encoder(self) -> Encoder:
        config = self.files.encoder
        tensors = self.files.encoder_tensors()
        encoder = Encoder.from_tensors(tensors, config.heads, config.layers).to(self.device)
        return encoder.to_precision(self.encoder_dtype)

    @cached_property
    def _encoder_batch(self) -> EncoderBatch:
        return EncoderBatch(self._encoder, self._hearing_seconds)

    @cached_property
    def _speaker(self) -> SpeakerEncoder:
        return SpeakerEncoder(self.files.speaker_path)

    @cached_property
    def _vocoder(self) -> Vocoder:
        return self._vocoder_files.load(self.device, self._trace_cpu_steps)

    def _flow(self, profile: FlowProfile) -> Flow:
        file = self.files.flow_file(profile)
        if file not in self._flows:
            tensors, head_dim = self.files.flow_tensors(profile), self.files.decoder.head_dim
            flow = Flow.from_tensors(tensors, flow_settings(self.files), head_dim)
            self._flows[file] = flow.to(self.device)
        return self._flows[file]
