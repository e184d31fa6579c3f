"""Playing a finished sound, with a sound card and without."""

import asyncio
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mosslive.cli import sound_card


class PortAudioError(Exception):
    pass


def card(**functions: Any) -> SimpleNamespace:
    def nothing(*_: object) -> None:
        pass

    calls = {"play": nothing, "wait": nothing, "stop": nothing} | functions
    return SimpleNamespace(PortAudioError=PortAudioError, **calls)


def play(module: object, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setitem(sys.modules, "sounddevice", module)
    return asyncio.run(sound_card.play(np.array([0.5, 2.0], np.float32), 24_000))


def test_a_sound_is_played_and_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """`play` gives the card the samples in range and waits until they were heard."""
    calls: list[Any] = []
    module = card(
        play=lambda sound, rate: calls.append((sound.tolist(), rate)),
        wait=lambda: calls.append("wait"),
    )
    assert play(module, monkeypatch)
    assert calls == [([0.5, 1.0], 24_000), "wait"]


def test_without_a_sound_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """`play` returns False without the package, PortAudio or a device."""

    def no_device(*_: object) -> None:
        raise PortAudioError

    assert not play(None, monkeypatch)
    assert not play(card(play=no_device), monkeypatch)


def test_a_cancelled_sound_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C stops the sound instead of waiting for its end."""
    calls: list[str] = []
    monkeypatch.setitem(sys.modules, "sounddevice", card(stop=lambda: calls.append("stop")))

    async def story() -> None:
        playing = asyncio.ensure_future(sound_card.play(np.zeros(4, np.float32), 24_000))
        await asyncio.sleep(0)
        playing.cancel()
        await asyncio.wait({playing})
        assert playing.cancelled()

    asyncio.run(story())
    assert calls == ["stop"]
