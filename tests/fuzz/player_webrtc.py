"""Plays a session over WebRTC: events over the data channel, speech into the microphone.

Writes into the record what went wrong. Runs on the event loop of the fuzzer. `missing` says why
there is no WebRTC here.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx

from tests.fuzz.record import ANSWER_S, Record
from tests.fuzz.recordings import sound
from tests.server.processes import Process

_CONNECT_S = 3 * ANSWER_S


def missing() -> str:
    """Why WebRTC cannot be tested; empty: it can."""
    try:
        import aiortc  # noqa: F401
    except ImportError as error:
        return f"aiortc is not installed: {error}"
    from aioice.ice import get_host_addresses

    return "" if get_host_addresses(True, False) else "the machine has no address but loopback"


async def play_webrtc(record: Record, served: Process) -> None:
    from tests.fuzz.player_http import check_refusal
    from tests.server.caller import Caller, post

    caller = Caller()
    channel = caller.channel
    channel.remove_all_listeners("message")
    channel.on("message", record.got)

    def closed() -> None:
        record.close = record.close or (0, "")
        record.wake()

    channel.on("close", closed)
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{served.port}", timeout=_CONNECT_S
        ) as http:
            answer = await post(http, await caller.offer(), None, {})
        if answer.status_code != 201:
            check_refusal(record, answer)
            return
        await caller.take(answer)
        if not await record.until(lambda: record.events, _CONNECT_S):
            record.fail("silent: the call has no session.created")
            return
        await _steps(record, caller.microphone.speak, channel.send)
    except httpx.HTTPError as error:
        record.fail(f"http: the offer: {error!r}")
    finally:
        await caller.close()


async def _steps(
    record: Record, speak: Callable[[Any], None], send: Callable[[str | bytes], None]
) -> None:
    for kind, value in record.session.steps:
        if record.close:
            break
        match kind:
            case "send":
                send(json.dumps(record.fill(value)))
            case "raw" if value:
                send(value)
            case "bytes" if value:
                send(bytes(value))
            case "wait" | "deaf":
                await asyncio.sleep(value)
            case "until":
                await record.next_of(value)
            case "speak":
                speak(sound(value))
            case "leave":
                return
        await asyncio.sleep(0)
    if not record.close:
        send(json.dumps(record.question()))
        await record.finish()
    if record.close:
        ends = [event for event in record.events if event["type"] == "error"]
        if not ends or ends[-1]["error"]["code"] != "session_ended":
            record.fail(f"closed: the channel, without a reason; last events: {ends[-1:]}")
