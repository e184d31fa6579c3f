"""A seed → a run: which sessions, over which transports, what they send and when they leave.

The same seed and shape give the same run. How a server interleaves its sessions is chance.
"""

import random
from dataclasses import dataclass

from tests.fuzz.broken_events import broken_step
from tests.fuzz.client_events import client_event, turn_detection
from tests.fuzz.http_requests import http_request
from tests.fuzz.script import Run, Session, Step

UNTIL = (
    *("response.created", "response.done", "response.output_audio.delta", "error"),
    *("conversation.item.added", "input_audio_buffer.speech_started", "session.updated"),
)


@dataclass(frozen=True)
class Shape:
    """How large a run is."""

    sessions: int = 6  # at most
    steps: int = 60  # of a session, at most
    webrtc: float = 0.0  # share of the sessions
    http: float = 0.2


def run_of(seed: int, shape: Shape) -> Run:
    chance = random.Random(seed)
    return [session_of(chance, shape) for _ in range(chance.randint(1, shape.sessions))]


def session_of(chance: random.Random, shape: Shape) -> Session:
    kind, delay_s = chance.random(), round(chance.random() ** 3, 3)
    if kind < shape.http:
        requests: list[Step] = [
            ("request", http_request(chance)) for _ in range(chance.randint(1, 6))
        ]
        return Session("http", delay_s, tuple(requests))
    if kind < shape.http + shape.webrtc:
        transport = "webrtc"
    else:
        transport = "beta" if chance.random() < 0.1 else "websocket"
    broken = chance.choice((0.0, 0.05, 0.5))  # share of the steps
    pause = chance.choice((0.0, 0.02, 0.1))
    steps: list[Step] = []
    if chance.random() < 0.3:  # from the first event on
        detection = {"input": {"turn_detection": turn_detection(chance)}}
        steps.append(("send", {"type": "session.update", "session": {"audio": detection}}))
    for _ in range(chance.randint(1, shape.steps)):
        if chance.random() < pause:
            steps.append(waiting(chance))
        elif chance.random() < broken:
            steps.append(broken_step(chance))
        elif transport == "webrtc" and chance.random() < 0.2:
            steps.append(("speak", f"$turn:{chance.choice((100, 300))}:{chance.randrange(4)}"))
        else:
            steps.append(("send", client_event(chance)))
    if chance.random() < 0.4:
        steps.append(("leave", chance.choice(("close", "abort"))))
    return Session(transport, delay_s, tuple(steps))


def waiting(chance: random.Random) -> Step:
    if chance.random() < 0.6:
        return "wait", round(chance.random() ** 4, 3)
    if chance.random() < 0.2:
        return "deaf", round(chance.random(), 3)
    return "until", chance.choice(UNTIL)
