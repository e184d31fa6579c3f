"""Each limit and lock of the server, with somebody who tries it."""

import asyncio
import hmac
import io
import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from mosslive import MossliveError
from mosslive.server.keys import KeyRing
from mosslive.server.logs import JsonLines
from mosslive.server.run import make_server
from mosslive.server.settings import check_exposure
from mosslive.server.sounds import read_file
from mosslive.server.wire import Refusal
from tests.server.rig import (
    MANUAL,
    RATE,
    WAIT_S,
    Parts,
    Peer,
    Served,
    run,
    serving,
    settings,
    spoken,
)

KEY, OTHER = "first-key-for-tests", "second-key-for-tests"


def bearing(key: str) -> dict[str, Any]:
    return {"additional_headers": {"Authorization": f"Bearer {key}"}}


async def denied(served: Served, **options: Any) -> tuple[int, str]:
    """Status and code with which a socket is refused."""
    with pytest.raises(InvalidStatus) as caught:
        async with connect(served.ws, **options):
            pass
    response = caught.value.response
    return response.status_code, json.loads(response.body or b"{}")["error"]["code"]


async def closed(peer: Peer) -> tuple[int, str]:
    """Reads on until the server has closed; with which code and why."""
    frame = None
    try:
        while True:
            await peer.next()
    except ConnectionClosed as end:
        frame = end.rcvd
    assert frame is not None
    return frame.code, frame.reason


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_strangers_need_a_key(host: str) -> None:
    """Asked: beyond loopback nothing is served without a key, unless asked for in words."""
    with pytest.raises(MossliveError, match="there is no key"):
        make_server(settings(host=host))
    check_exposure(settings(host=host, api_keys=(KEY,)))
    check_exposure(settings(host=host, no_auth=True))
    check_exposure(settings(host="127.0.0.1"))


def test_keys(parts: Parts) -> None:
    """Asked: no key, a wrong one and half of one are refused; header and subprotocol both open."""

    async def test() -> None:
        async with serving(parts, api_keys=(KEY, OTHER)) as served:
            assert await denied(served) == (401, "invalid_api_key")
            assert await denied(served, **bearing("wrong")) == (401, "invalid_api_key")
            assert await denied(served, **bearing(KEY[:-1])) == (401, "invalid_api_key")
            assert await denied(served, **bearing("ek_made_up")) == (401, "invalid_api_key")
            async with served.session(**bearing(OTHER)):
                pass
            names: Any = ["realtime", f"openai-insecure-api-key.{KEY}"]
            async with served.session(subprotocols=names) as peer:
                assert peer.socket.subprotocol == "realtime"
            async with httpx.AsyncClient(base_url=served.http) as http:
                for path in ("/v1/models", "/v1/voices"):
                    assert (await http.get(path)).status_code == 401
                for path in ("/v1/chat/completions", "/v1/realtime/client_secrets"):
                    assert (await http.post(path, json={})).status_code == 401
                for path in ("/health", "/health/live", "/version", "/metrics"):
                    assert (await http.get(path)).status_code == 200
                header = {"Authorization": f"Bearer {KEY}"}
                assert (await http.get("/v1/models", headers=header)).status_code == 200

    run(test())


def test_keys_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked: only hashes are kept, and every one is compared whatever fits first."""
    ring = KeyRing([KEY, OTHER])
    assert KEY not in repr(vars(ring))
    compared: list[bytes] = []
    real = hmac.compare_digest

    def watched(one: bytes, other: bytes) -> bool:
        compared.append(other)
        return real(one, other)

    monkeypatch.setattr("mosslive.server.keys.hmac.compare_digest", watched)
    owners = {ring.bearer(KEY).owner, ring.bearer(OTHER).owner}
    assert len(owners) == 2
    assert not any(KEY in owner or OTHER in owner for owner in owners)
    with pytest.raises(Refusal):
        ring.bearer("another")
    assert len(compared) == 6


def test_ephemeral_keys(parts: Parts) -> None:
    """Asked: made with a key, for a session; they open several, expire, and make no others; a
    session outlives its key."""

    async def test() -> None:
        async with serving(parts, api_keys=(KEY,)) as served:
            now = [1000.0]
            served.house.keys._clock = lambda: now[0]
            async with httpx.AsyncClient(base_url=served.http) as http:
                header = {"Authorization": f"Bearer {KEY}"}
                body = {
                    "expires_after": {"anchor": "created_at", "seconds": 60},
                    "session": MANUAL | {"instructions": "Be kind."},
                }
                path = "/v1/realtime/client_secrets"
                made = (await http.post(path, json=body, headers=header)).json()
                assert made["expires_at"] == 1060
                assert made["session"]["instructions"] == "Be kind."
                key = made["value"]
                assert key.startswith("ek_")
                again = await http.post(path, json={}, headers={"Authorization": f"Bearer {key}"})
                assert again.json()["error"]["code"] == "ephemeral_key"
                beta = await http.post("/v1/realtime/sessions", json={}, headers=header)
                assert beta.json()["client_secret"]["value"].startswith("ek_")
            async with served.session(**bearing(key)) as peer, served.session(**bearing(key)):
                assert peer.events[0]["session"]["instructions"] == "Be kind."
                now[0] = 1060.0
                assert await denied(served, **bearing(key)) == (401, "invalid_api_key")
                await peer.ask()

    run(test())


def test_pages_of_other_hosts(parts: Parts) -> None:
    """Asked: a browser's page of another host cannot reach us; nor can one that makes its own name
    point here; ours and allowed ones can."""

    async def test() -> None:
        async with serving(parts, allowed_origins=("https://friend.example",)) as served:
            assert await denied(served, origin="https://evil.example") == (
                403,
                "origin_not_allowed",
            )
            assert await denied(served, origin="null") == (403, "origin_not_allowed")
            rebound = {"Host": f"evil.example:{served.port}"}
            async with httpx.AsyncClient(base_url=served.http) as http:
                answer = await http.get("/v1/models", headers=rebound)
                assert answer.json()["error"]["code"] == "host_not_allowed"
                origin = rebound | {"Origin": f"http://evil.example:{served.port}"}
                assert (await http.get("/v1/models", headers=origin)).status_code == 403
                foreign = {"Origin": "https://evil.example"}
                answer = await http.post("/v1/audio/speech", json={}, headers=foreign)
                assert answer.status_code == 403
                assert "access-control-allow-origin" not in answer.headers
                friend = {"Origin": "https://friend.example"}
                answer = await http.options("/v1/models", headers=friend)
                assert answer.headers["access-control-allow-origin"] == "https://friend.example"
            async with served.session(origin=served.http):
                pass
            async with served.session(origin="https://friend.example"):
                pass

    run(test())


def test_number_of_sessions(parts: Parts) -> None:
    """Asked: limits in all and per key; a seat is free again when its session ends."""

    async def test() -> None:
        keys: dict[str, Any] = {
            "api_keys": (KEY, OTHER),
            "max_sessions": 3,
            "max_sessions_per_key": 2,
        }
        async with serving(parts, **keys) as served:
            async with served.session(**bearing(KEY)), served.session(**bearing(KEY)):
                assert await denied(served, **bearing(KEY)) == (429, "too_many_sessions")
                async with served.session(**bearing(OTHER)):
                    assert await denied(served, **bearing(OTHER)) == (429, "too_many_sessions")
            await served.quiet()
            async with served.session(**bearing(KEY)):
                pass

    run(test())


def test_frames(parts: Parts) -> None:
    """Asked: rubbish is answered; a huge frame ends its own connection; nobody else notices."""

    async def test() -> None:
        async with serving(parts, max_event_bytes=100_000) as served, served.session() as other:
            async with served.session() as peer:
                for frame, code in (
                    (b"\x00\x01", "invalid_frame"),
                    ("not json", "invalid_json"),
                    ("[" * 20_000, "invalid_json"),
                    ("[]", "invalid_event"),
                    ("1" * 5000, "invalid_json"),
                    ('{"type": "\\ud800"}', "invalid_value"),
                    ('{"type": {}}', "invalid_event"),
                ):
                    await peer.socket.send(frame)
                    assert (await peer.refusal())["code"] == code
                await peer.send("session.update", session={"instructions": "x" * 200_000})
                assert (await closed(peer))[0] == 1009
            async with served.session(compression="deflate") as bomb:  # small on the wire
                await bomb.send("session.update", session={"instructions": "x" * 5_000_000})
                assert (await closed(bomb))[0] == 1009
            await other.manual()
            await other.ask()

    run(test())


def test_long_turns_and_texts(parts: Parts) -> None:
    """Asked: a turn that does not end is ended; a buffer that is not committed is full; long texts
    are refused."""

    async def test() -> None:
        limits: dict[str, Any] = {"max_turn_s": 1.0, "max_text_chars": 100, "max_items": 1}
        async with serving(parts, **limits) as served, served.session() as peer:
            await peer.say(spoken(1.5))
            await peer.until("input_audio_buffer.committed")
            await peer.manual()
            await peer.say(spoken(1.2))
            assert (await peer.refusal())["code"] == "input_audio_buffer_full"
            await peer.send("input_audio_buffer.clear")
            part = {"type": "input_text", "text": "x" * 101}
            item = {"type": "message", "role": "user", "content": [part]}
            await peer.until("input_audio_buffer.cleared")
            await peer.send("conversation.item.create", item=item)
            assert (await peer.refusal())["code"] == "too_many_items"
            aside = {"conversation": "none", "input": [item]}
            await peer.send("response.create", response=aside)
            done = (await peer.until("response.done"))["response"]
            assert done["status_details"]["error"]["code"] == "invalid_value"

    run(test())


def test_idle_and_endless_sessions(parts: Parts) -> None:
    """Asked: who says nothing for too long is closed; so is who stays too long."""

    async def test() -> None:
        async with serving(parts, idle_s=0.3) as served, served.session() as peer:
            assert await closed(peer) == (1008, "idle for too long")
        async with serving(parts, max_session_s=1.0) as served, served.session() as peer:
            assert (await closed(peer))[0] == 1008

    run(test())


def test_a_reader_that_does_not_read(parts: Parts) -> None:
    """Asked: a slow reader is dropped when it owes too much, and slows nobody meanwhile."""

    async def test() -> None:
        limits: dict[str, Any] = {
            "send_queue_bytes": 200_000,
            "send_timeout_s": 0.5,
            "max_event_bytes": 1 << 20,
        }
        async with serving(parts, **limits) as served, served.session() as other:
            await other.manual()
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1024)
            writer.write(
                b"GET /v1/realtime HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
                b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            )
            await reader.readuntil(b"\r\n\r\n")
            # Asks for its whole configuration again and again, and reads none of the answers.
            tools = json.dumps([{"type": "function", "name": "y" * 15_000}])
            event = f'{{"type":"session.update","session":{{"tools":{tools}}}}}'.encode()
            frame = b"\x81\xfe" + len(event).to_bytes(2, "big") + bytes(4) + event

            async def flood() -> None:
                while True:
                    writer.write(frame)
                    await writer.drain()

            flooding = asyncio.get_running_loop().create_task(flood())
            async with asyncio.timeout(WAIT_S):
                for _ in range(3):
                    await other.ask()
                while served.house.seats.taken > 1:
                    await asyncio.sleep(0.01)
            flooding.cancel()
            await asyncio.wait([flooding])
            writer.transport.abort()
            dropped = served.house.metrics.dropped.labels("the reader is too slow")
            assert dropped._value.get() == 1

    run(test())


def test_bodies(parts: Parts) -> None:
    """Asked: long bodies are refused by what they announce and by what they are."""

    async def test() -> None:
        async def endless() -> Any:
            for _ in range(50):
                yield b"x" * 1000

        async with (
            serving(parts, max_upload_bytes=10_000) as served,
            httpx.AsyncClient(base_url=served.http) as http,
        ):
            answer = await http.post("/v1/chat/completions", content=b"x" * 20_000)
            assert answer.status_code == 413
            answer = await http.post("/v1/chat/completions", content=endless())
            assert answer.json()["error"]["code"] == "body_too_large"

    run(test())


def test_a_small_file_that_unpacks_to_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked: refused by its header, and where the header lies, before the rest is unpacked."""
    out = io.BytesIO()
    soundfile.write(out, np.zeros(3600 * 8000, np.int16), 8000, format="FLAC")
    data = out.getvalue()
    assert len(data) < 150_000
    with pytest.raises(Refusal, match="longer than 60 s"):
        read_file(data, 60.0)
    read: list[int] = []
    true_frames = soundfile.SoundFile.frames.fget

    class Liar(soundfile.SoundFile):  # type: ignore[misc]
        asked = 0

        @property
        def frames(self) -> int:
            Liar.asked += 1
            return 0 if Liar.asked == 1 else int(true_frames(self))

        def read(self, count: int, **options: Any) -> Any:
            read.append(count)
            return super().read(count, **options)

    monkeypatch.setattr(soundfile, "SoundFile", Liar)
    with pytest.raises(Refusal, match="longer than 60 s"):
        read_file(data, 60.0)
    assert sum(read) < 61 * 8000 + (1 << 16)


def test_sessions_do_not_see_each_other(parts: Parts) -> None:
    """Asked: items of another session do not exist here; nor do voices of another key."""

    async def test() -> None:
        async with serving(parts, api_keys=(KEY, OTHER)) as served:
            async with served.session(**bearing(KEY)) as one, served.session(**bearing(KEY)) as two:
                await one.manual()
                done = (await one.ask())["response"]
                for event in ("retrieve", "delete"):
                    item = done["output"][0]["id"]
                    await two.send(f"conversation.item.{event}", item_id=item)
                    assert (await two.refusal())["code"].endswith("invalid_item_id")
                await two.send("response.cancel", response_id=done["id"])
                assert (await two.refusal())["code"] == "response_cancel_not_active"
            async with httpx.AsyncClient(base_url=served.http, timeout=WAIT_S) as http:
                mine, yours = ({"Authorization": f"Bearer {key}"} for key in (KEY, OTHER))
                out = io.BytesIO()
                soundfile.write(out, spoken(1.0), RATE, format="WAV")
                made = await http.post(
                    "/v1/voices",
                    files={"file": ("a.wav", out.getvalue())},
                    data={"name": "secret"},
                    headers=mine,
                )
                assert made.status_code == 201
                listed = (await http.get("/v1/voices", headers=yours)).json()["data"]
                assert [one["id"] for one in listed] == ["default"]
                gone = await http.delete("/v1/voices/secret", headers=yours)
                assert gone.status_code == 404
            async with served.session(**bearing(OTHER)) as peer:
                audio = {"output": {"voice": "secret"}}
                await peer.send("session.update", session={"type": "realtime", "audio": audio})
                session = (await peer.until("session.updated"))["session"]
                assert session["audio"]["output"]["voice"] == "default"

    run(test())


def test_logs_hold_no_words(parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
    """Asked: what is said and sent is not in the log, and neither are keys."""

    async def test() -> None:
        async with serving(parts, api_keys=(KEY,)) as served:
            async with served.session(**bearing(KEY)) as peer:
                part = {"type": "input_text", "text": "a private matter"}
                item = {"type": "message", "role": "user", "content": [part]}
                await peer.send("conversation.item.create", item=item)
                await peer.send("response.create", response={"output_modalities": ["text"]})
                done = await peer.until("response.done")
                await peer.send("private matter two")
                await peer.refusal()
                reply = done["response"]["output"][0]["content"][0]["text"]
            async with httpx.AsyncClient(base_url=served.http, timeout=WAIT_S) as http:
                body = {"messages": [{"role": "user", "content": "private matter three"}]}
                header = {"Authorization": f"Bearer {KEY}"}
                await http.post("/v1/chat/completions", json=body, headers=header)
            assert reply
            lines = [JsonLines().format(record) for record in caplog.records]
            assert any("session begins" in line for line in lines)
            for line in lines:
                json.loads(line)
                assert "private matter" not in line
                assert KEY not in line
                assert json.dumps(reply, ensure_ascii=False)[1:-1] not in line or len(reply) < 4

    with caplog.at_level(logging.DEBUG, "mosslive"):
        run(test())


def test_tls(parts: Parts, tmp_path: Path) -> None:
    """Asked: with a certificate the server speaks https and wss only."""
    import ssl

    cert, key = _certificate(tmp_path)

    async def test() -> None:
        async with serving(parts, ssl_certfile=cert, ssl_keyfile=key) as served:
            trust = ssl.create_default_context(cafile=str(cert))
            url = f"wss://127.0.0.1:{served.port}/v1/realtime"
            async with connect(url, ssl=trust, server_hostname="localhost") as socket:
                assert json.loads(await socket.recv())["type"] == "session.created"
            with pytest.raises((OSError, EOFError, Exception)):
                async with connect(served.ws, open_timeout=5):
                    pass

    run(test())


def _certificate(folder: Path) -> tuple[Path, Path]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    cert_path, key_path = folder / "cert.pem", folder / "key.pem"
    cert_path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert_path, key_path
