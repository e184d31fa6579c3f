"""The sound card, through sounddevice (imported when used): finds it and plays a finished sound.

Runs on the event loop; sounddevice plays on its own thread. Does not know turns; live playback is
`microphone.py`.
"""

import asyncio
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from mosslive.errors import MossliveError


class NoSoundCard(MossliveError):
    """A package, a library or a device is missing. The message says what to do."""


def sounddevice() -> ModuleType:
    try:
        import sounddevice
    except ImportError:
        raise NoSoundCard(
            "playing and recording need sounddevice: pip install 'mosslive[talk]'"
        ) from None
    except OSError as error:  # the package is installed, PortAudio is not
        raise NoSoundCard(
            f"playing and recording need PortAudio ({error}): apt install libportaudio2"
        ) from None
    module: ModuleType = sounddevice
    return module


async def play(sound: NDArray[np.float32], rate_hz: int) -> bool:
    """Plays the whole sound; cancelling stops it. Returns False if there is no sound card."""
    try:
        device = sounddevice()
    except NoSoundCard:
        return False
    try:
        device.play(np.clip(sound, -1, 1), rate_hz)
        await asyncio.to_thread(device.wait)
    except (device.PortAudioError, ValueError):
        return False
    except asyncio.CancelledError:
        device.stop()
        raise
    return True
