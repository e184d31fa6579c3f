"""Parts of a WebRTC call without a call: track, inbox, and the parameters of an offer."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from av import AudioFrame
from hypothesis import given, settings
from hypothesis import strategies as st

from mosslive.errors import MossliveError
from mosslive.server.api_errors import ApiError
from mosslive.server.run import make_server
from mosslive.server.settings import ServerSettings
from mosslive.server.webrtc.audio_track import FRAME_S, OutgoingTrack, Utterance
from mosslive.server.webrtc.event_inbox import Inbox, InboxFull
from mosslive.server.webrtc.microphone import MOST_PAUSE_S, Microphone
from mosslive.server.webrtc.offer import check_offer, ice_server, merge, without_event_formats
from tests.server.rig import RATE, run

KEY = "a-key-long-enough"


async def heard(track: OutgoingTrack) -> Any:
    return (await track.recv()).to_ndarray()[0]


def test_track_plays_replies_one_after_the_other() -> None:
    """Every sample is sent once and in order, a reply waits until the previous one is complete,
    `clear` leaves silence, and the queue is limited."""

    async def test() -> None:
        track = OutgoingTrack(RATE, most_s=0.1)
        calls: list[tuple[str, str]] = []
        track.on_started = lambda one: calls.append(("started", one.response_id))
        track.on_stopped = lambda one: calls.append(("stopped", one.response_id))
        frame = round(FRAME_S * RATE)
        first, second = Utterance("a", "i"), Utterance("b", "j")
        ramp = np.arange(1, frame + 11, dtype=np.int16)
        assert track.play(first, ramp[:frame])
        assert track.play(second, np.full(frame, -1, np.int16))
        assert (await heard(track) == ramp[:frame]).all()
        assert not (await heard(track)).any()  # the first is not complete
        track.play(first, ramp[frame:])
        first.whole = True
        mixed = await heard(track)
        assert (mixed[:10] == ramp[frame:]).all()
        assert (mixed[10:] == -1).all()
        assert calls == [("started", "a"), ("stopped", "a"), ("started", "b")]
        assert (first.played, second.played) == (frame + 10, frame - 10)
        assert track.clear() == [second]
        await track.quiet()
        track.play(second, ramp)  # muted
        assert not (await heard(track)).any()
        third = Utterance("c", "k")
        assert not track.play(third, np.zeros(RATE, np.int16))
        track.stop()

    run(test())


def test_track_counts_gaps_in_the_middle_of_a_reply() -> None:
    """Silence between two sounds of a reply is a gap of its length; before it and after it is not,
    nor is what follows a reply that is whole."""

    async def test() -> None:
        track, gaps = OutgoingTrack(RATE, most_s=1.0), list[float]()
        track.on_gap = gaps.append
        frame = round(FRAME_S * RATE)
        reply, sound = Utterance("a", "i"), np.ones(frame, np.int16)
        await heard(track)
        track.play(reply, sound[: frame // 2])
        for _ in range(3):
            await heard(track)
        assert gaps == []  # it may be over
        track.play(reply, sound)
        await heard(track)
        assert gaps == [pytest.approx(2.5 * FRAME_S)]
        assert reply.gaps == 1
        assert reply.silence_s == gaps[0]
        await heard(track)
        reply.whole = True
        for _ in range(2):
            await heard(track)
        assert len(gaps) == 1
        track.stop()

    run(test())


def test_inbox_is_bounded() -> None:
    """The queue of unhandled client events is limited, and our own events keep their order among
    them."""

    async def test() -> None:
        inbox = Inbox(2000)
        inbox.put('{"n": 1}')
        inbox.put_own({"n": 2})
        inbox.put(b"x")
        assert await inbox.get() == {"n": 1}
        assert await inbox.get() == {"n": 2}
        with pytest.raises(ApiError, match="text"):
            await inbox.get()
        inbox.put("x" * 1000)
        inbox.put("x" * 1000)
        with pytest.raises(InboxFull):
            await inbox.get()

    run(test())


def test_ice_servers_are_read() -> None:
    """The ICE configuration is parsed, and a malformed one is refused when the server starts."""
    assert ice_server("stun:a.example:3478").urls == "stun:a.example:3478"
    relay = ice_server("turn:me:se:cret@a.example:3478?transport=tcp")
    assert relay.urls == "turn:a.example:3478?transport=tcp"
    assert (relay.username, relay.credential) == ("me", "se:cret")
    for wrong in ("http://a.example", "stun:", "a.example"):
        with pytest.raises(MossliveError, match="ice_servers"):
            make_server(ServerSettings(ice_servers=(wrong,)))


def test_offers_and_sessions_are_merged() -> None:
    """Fields of the call's session override those of the key, field by field within objects."""
    key = {"audio": {"output": {"voice": "a", "speed": 1}}, "instructions": "x"}
    call = {"audio": {"output": {"voice": "b"}}}
    assert merge(key, call) == {
        "audio": {"output": {"voice": "b", "speed": 1}},
        "instructions": "x",
    }
    event = {"type": "t", "session": {"audio": {"input": {"format": 1, "x": 2}}}}
    assert without_event_formats(event)["session"] == {"audio": {"input": {"x": 2}}}
    offer = "v=0\nm=audio 9 X 0\na=ice-ufrag:a\na=ice-pwd:b\na=fingerprint:c"
    assert check_offer(offer) == offer.replace("\n", "\r\n") + "\r\n"


def said(number: int, pts: int | None = None) -> AudioFrame:
    """Frame `number` of a loud sound, 20 ms at 48 kHz."""
    frame = AudioFrame.from_ndarray(np.full((1, 960), 8000, np.int16), "s16", "mono")
    frame.sample_rate, frame.time_base = 48_000, Fraction(1, 48_000)
    frame.pts = 960 * number if pts is None else pts
    return frame


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.sets(st.integers(1, 60)), st.integers(0, 3))
def test_lost_frames_become_silence(lost: set[int], pauses: int) -> None:
    """The sound keeps its length whichever frames are lost, also if a part of the pause was filled
    before the next frame came."""
    microphone, there = Microphone(48_000), [n for n in range(62) if n not in lost]
    samples, before = 0, 0
    for number in there:
        missing_s = 0.02 * (number - before - 1)
        for _ in range(pauses if missing_s >= 0.02 * pauses else 0):
            samples += len(microphone.pause(0.02))
        samples += len(microphone.push(said(number)))
        before = number
    assert samples == 62 * 960


def test_silence_of_a_pause_is_limited() -> None:
    """A long pause, a jump of the time stamps and a microphone that has sent nothing fill no
    memory."""
    microphone, most = Microphone(48_000), round(MOST_PAUSE_S * 48_000)
    assert len(microphone.pause(1.0)) == 0
    microphone.push(said(0))
    assert sum(len(microphone.pause(0.25)) for _ in range(100)) == most
    assert len(microphone.push(said(5000))) == 960
    assert len(microphone.push(said(0, pts=960 * 10**9))) == most + 960
    assert len(microphone.push(said(0))) == 960  # time stamps that begin again
