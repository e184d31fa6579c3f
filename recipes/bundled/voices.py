"""The voices: three synthesisers of the pack behind one call, and the variation of each utterance.

`speak` returns an utterance as 24 kHz sound and its phones. flite and eSpeak NG are loaded into
this process from the unpacked folder (see pack_voices.sh); festival, which takes half a second to
start, speaks a batch per process. All randomness comes from the seed of the utterance. But eSpeak
NG keeps the phase of its oscillators between utterances and has no reset: only a batch spoken by a
fresh process is reproducible. Knows no grammar.
"""

from __future__ import annotations

import ctypes
import platform
import random
import re
import string
import subprocess
import tempfile
import wave
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recipes.bundled.corpus import SAMPLE_RATE_HZ
from recipes.bundled.grammar.rules import listed
from recipes.bundled.levelling import change_rate, level, trim

Sound = NDArray[np.float32]

ASSISTANT = "hts-slt"
FLITE = ("rms", "awb", "kal16")
ESPEAK = tuple(
    [f"{sex}{number}" for sex, top in (("f", 4), ("m", 4)) for number in range(1, top + 1)]
    + ["m6", "m7", "Alicia", "Andy", "Annie", "Michael", "linda", "max", "steph"]
)
# Weight of each voice. Many voices, because people differ more than the best synthetic ones do.
USERS: dict[str, float] = {
    **{f"flite-{name}": 4.0 for name in FLITE},
    **{f"espeak-{name}": 1.0 for name in ESPEAK},
    ASSISTANT: 3.5,
}
# Half a second of processor time or less for a minute of speech; the others take four times that.
QUICK_USERS = {v: often for v, often in USERS.items() if v == "flite-kal16" or "espeak" in v}
HELDOUT_USERS = ("flite-slt", "espeak-f5", "espeak-m5", "espeak-Alex", "espeak-belinda")

_LETTER_NAMES = (
    "ay bee see dee ee eff jee aitch eye jay kay ell em en oh pee cue are ess tee you vee"
    " double-you ex why zee"
)
LETTERS = dict(zip(string.ascii_uppercase, listed(_LETTER_NAMES), strict=True))
_FLITE_F0_HZ = {"rms": 100.0, "awb": 125.0, "kal16": 105.0, "slt": 185.0}


@dataclass(frozen=True)
class Line:
    """One utterance to make: voice, text, and the seed of its variation; "" is unvaried."""

    text: str
    voice: str
    seed: str = ""


@dataclass(frozen=True)
class Spoken:
    sound: NDArray[np.int16]  # [samples] at 24 kHz
    phones: list[str]


def spoken_text(text: str) -> str:
    """Returns the text for the synthesiser: spelled letters by their names, which all voices can
    read."""
    named = re.sub(r"\b([A-Z])(?=[,.])", lambda letter: LETTERS[letter[1]].replace("-", " "), text)
    return named.replace("Reykjavik", "Rake ya vick")


def speak(lines: list[Line], folder: Path) -> list[Spoken]:
    """Speaks a batch; results are in the order of the lines."""
    raw: dict[int, tuple[Sound, int]] = {}
    hts = [i for i, line in enumerate(lines) if line.voice == ASSISTANT]
    raw.update(zip(hts, _festival([spoken_text(lines[i].text) for i in hts], folder), strict=True))
    made = []
    for index, line in enumerate(lines):
        rng = random.Random(line.seed) if line.seed else None
        engine, _, name = line.voice.partition("-")
        text = spoken_text(line.text)
        phones: list[str] = []
        if engine == "flite":
            sound, rate_hz, phones = _Flite.of(folder).speak(text, name, rng)
        elif engine == "espeak":
            sound, rate_hz = _Espeak.of(folder).speak(text, name, rng)
        else:
            sound, rate_hz = raw[index]
        # The only change of timing: speaker size, pitch and pace together, as in a longer throat.
        speed = rng.uniform(0.9, 1.12) if rng and rng.random() < 0.6 else 1.0
        pcm = level(trim(change_rate(sound, rate_hz * speed, SAMPLE_RATE_HZ)))
        made.append(Spoken(pcm, phones or phones_of(text, folder)))
    return made


def check_pack(folder: Path) -> None:
    """Raises `ValueError` for a folder that is not a pack, or is one for another processor."""
    loader = folder / "lib" / "ld.so"
    if not (loader.exists() and (folder / "bin" / "festival").exists()):
        raise ValueError(f"{folder}: the folder has no voices; make the pack with pack_voices.sh")
    try:
        subprocess.run([loader, "--version"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise ValueError(
            f"{folder}: voices of another processor than {platform.machine()}; pack_voices.sh makes"
            " the pack for this one"
        ) from None


@cache
def _phones(text: str, folder: Path) -> tuple[str, ...]:
    return tuple(_Flite.of(folder).speak(text, "kal16", None)[2])


def phones_of(text: str, folder: Path) -> list[str]:
    """Returns the phones of a text by flite's lexicon, without pauses; one set for all voices."""
    return list(_phones(text, folder))


class _Wave(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_char_p),
        ("sample_rate", ctypes.c_int),
        ("num_samples", ctypes.c_int),
        ("num_channels", ctypes.c_int),
        ("samples", ctypes.POINTER(ctypes.c_short)),
    )


class _Voice(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("features", ctypes.c_void_p))


class _Flite:
    @staticmethod
    @cache
    def of(folder: Path) -> _Flite:
        return _Flite(folder / "flite")

    def __init__(self, folder: Path) -> None:
        def load(name: str) -> ctypes.CDLL:
            # Found here by path; what it links to has been loaded before it, in this order.
            return ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)

        load("libasound.so.2")
        self._lib = lib = load("libflite.so.1")
        load("libflite_usenglish.so.1")
        load("libflite_cmulex.so.1")
        pointer, text = ctypes.c_void_p, ctypes.c_char_p
        for name, result, arguments in (
            ("flite_synth_text", pointer, (text, pointer)),
            ("utt_wave", ctypes.POINTER(_Wave), (pointer,)),
            ("utt_relation", pointer, (pointer, text)),
            ("relation_head", pointer, (pointer,)),
            ("item_next", pointer, (pointer,)),
            ("item_feat_string", text, (pointer, text)),
            ("delete_utterance", None, (pointer,)),
            ("feat_set_float", None, (pointer, text, ctypes.c_float)),
        ):
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments
        lib.flite_init()
        self._srand = ctypes.CDLL(None).srand
        self._voices = {}
        for name in _FLITE_F0_HZ:
            register = getattr(load(f"libflite_cmu_us_{name}.so.1"), f"register_cmu_us_{name}")
            register.restype, register.argtypes = ctypes.POINTER(_Voice), (text,)
            self._voices[name] = register(None)

    def speak(
        self, text: str, name: str, rng: random.Random | None
    ) -> tuple[Sound, int, list[str]]:
        lib, voice = self._lib, self._voices[name]
        stretch = rng.uniform(0.85, 1.2) if rng else 1.0
        f0_hz = _FLITE_F0_HZ[name] * (rng.uniform(0.85, 1.2) if rng else 1.0)
        lib.feat_set_float(voice.contents.features, b"duration_stretch", stretch)
        lib.feat_set_float(voice.contents.features, b"int_f0_target_mean", f0_hz)
        self._srand(1)  # the breath of its voices comes from the C library's generator
        utterance = lib.flite_synth_text(text.encode(), ctypes.cast(voice, ctypes.c_void_p))
        made = lib.utt_wave(utterance).contents
        sound = _float(np.ctypeslib.as_array(made.samples, (made.num_samples,)))
        rate_hz = int(made.sample_rate)
        phones = []
        item = lib.relation_head(lib.utt_relation(utterance, b"Segment"))
        while item:
            phones.append(lib.item_feat_string(item, b"name").decode())
            item = lib.item_next(item)
        lib.delete_utterance(utterance)
        return sound, rate_hz, [phone for phone in phones if phone != "pau"]


class _Espeak:
    # In the synchronous mode (2) the call returns when all is spoken; mode 1 waits for itself.
    _SYNCHRONOUS, _UTF8 = 2, 1
    _RATE, _PITCH, _RANGE = 1, 3, 4

    @staticmethod
    @cache
    def of(folder: Path) -> _Espeak:
        return _Espeak(folder / "espeak")

    def __init__(self, folder: Path) -> None:
        self._lib = lib = ctypes.CDLL(str(folder / "libespeak-ng.so"))
        self._rate_hz = lib.espeak_Initialize(self._SYNCHRONOUS, 0, str(folder).encode(), 0)
        if self._rate_hz <= 0:
            raise OSError(f"{folder}: eSpeak NG did not start (code {self._rate_hz})")
        self._srand = ctypes.CDLL(None).srand
        self._pieces: list[NDArray[np.int16]] = []
        shape = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p
        )

        def take(samples: ctypes._Pointer[ctypes.c_short], count: int, _events: int | None) -> int:
            if samples and count > 0:
                self._pieces.append(np.ctypeslib.as_array(samples, (count,)).copy())
            return 0

        self._take = shape(take)  # kept: the library calls it later
        lib.espeak_SetSynthCallback(self._take)

    def speak(self, text: str, name: str, rng: random.Random | None) -> tuple[Sound, int]:
        lib = self._lib
        if lib.espeak_SetVoiceByName(f"en-us+{name}".encode()):
            raise ValueError(f"espeak-{name}: the pack has no such voice")
        lib.espeak_SetParameter(self._RATE, rng.randint(130, 185) if rng else 160, 0)
        lib.espeak_SetParameter(self._PITCH, rng.randint(25, 75) if rng else 50, 0)
        lib.espeak_SetParameter(self._RANGE, rng.randint(35, 70) if rng else 50, 0)
        data = text.encode()
        self._pieces.clear()
        lib.espeak_ng_SetRandSeed(ctypes.c_long(1))  # or the breath is seeded by the clock
        self._srand(1)
        lib.espeak_Synth(data, ctypes.c_size_t(len(data) + 1), 0, 0, 0, self._UTF8, None, None)
        return _float(np.concatenate(self._pieces)), self._rate_hz


# Debian's festival has its folder compiled in and asks for it in four places.
_FESTIVAL = """
(set! datadir libdir)
(set! load-path (cons libdir nil))
(set! system-voice-path (cons (path-append libdir "voices/") nil))
(set! system-language-path (cons (path-append libdir "languages/") nil))
(load (path-append libdir "init.scm"))
(voice_cmu_us_slt_arctic_hts)
(define (say text file) (utt.save.wave (utt.synth (eval (list 'Utterance 'Text text))) file 'riff))
"""


def _festival(texts: list[str], folder: Path) -> list[tuple[Sound, int]]:
    if not texts:
        return []
    with tempfile.TemporaryDirectory() as made:
        calls = (f'(say "{text}" "{made}/{i}.wav")' for i, text in enumerate(texts))
        script = Path(made, "say.scm")
        script.write_text(_FESTIVAL + "\n".join(calls), encoding="utf-8")
        command = [f"{folder}/lib/ld.so", "--library-path", f"{folder}/lib"]
        command += [f"{folder}/bin/festival", "--libdir", f"{folder}/festival/", "-b", str(script)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        files = [Path(made, f"{i}.wav") for i in range(len(texts))]
        if done.returncode or not all(file.exists() for file in files):
            raise OSError(f"festival failed ({done.returncode}): {done.stderr[-400:]}")
        return [_read(file) for file in files]


def _read(path: Path) -> tuple[Sound, int]:
    with wave.open(str(path)) as file:
        pcm = np.frombuffer(file.readframes(file.getnframes()), np.int16)
        return _float(pcm), file.getframerate()


def _float(pcm: NDArray[np.int16]) -> Sound:
    return np.divide(pcm, 32768, dtype=np.float32)
