"""Access: keys, ephemeral keys and the origins of browser pages."""

import hmac
import logging
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from mosslive import MossliveError
from mosslive.server.api_errors import ApiError
from mosslive.server.keys import KeyStore
from mosslive.server.run import make_server
from mosslive.server.settings import check_exposure
from tests.server.auth import KEY, OTHER, bearing, denied
from tests.server.rig import MANUAL, Parts, run, serving, settings


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", "127.example.org"])
def test_other_machines_need_a_key(host: str) -> None:
    """On an address other than loopback the server starts only with a key or with an explicit
    `no_auth`."""
    with pytest.raises(MossliveError, match="there is no key"):
        make_server(settings(host=host))
    check_exposure(settings(host=host, api_keys=(KEY,)))
    check_exposure(settings(host=host, no_auth=True))
    check_exposure(settings(host="127.0.0.1"))


def test_keys(parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
    """No key, a wrong key and half a key are refused; a key in the header or in the subprotocol is
    accepted, and refusals log no error."""

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
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_keys_are_stored_as_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server stores only hashes of keys and compares all of them, whichever matches first."""
    keys = KeyStore([KEY, OTHER])
    assert KEY not in repr(vars(keys))
    compared: list[bytes] = []
    real = hmac.compare_digest

    def watched(one: bytes, other: bytes) -> bool:
        compared.append(other)
        return real(one, other)

    monkeypatch.setattr("mosslive.server.keys.hmac.compare_digest", watched)
    owners = {keys.bearer(KEY).owner, keys.bearer(OTHER).owner}
    assert len(owners) == 2
    assert not any(KEY in owner or OTHER in owner for owner in owners)
    with pytest.raises(ApiError):
        keys.bearer("another")
    assert len(compared) == 6


def test_ephemeral_keys(parts: Parts) -> None:
    """An ephemeral key is created with a key for one session configuration, opens several sessions,
    expires and creates no other keys; a session outlives its key."""

    async def test() -> None:
        async with serving(parts, api_keys=(KEY,)) as served:
            now = [1000.0]
            served.server_state.keys._clock = lambda: now[0]
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
    """A page of another host cannot use the server, not even by DNS rebinding; our own page and
    allowed origins can."""

    async def test() -> None:
        async with serving(parts, allowed_origins=("https://friend.example",)) as served:
            assert await denied(served, origin="https://evil.example") == (
                403,
                "origin_not_allowed",
            )
            assert await denied(served, origin="null") == (403, "origin_not_allowed")
            for wrong in ("http://[", "http://127.0.0.1@evil.example", "x" * 300):
                assert await denied(served, origin=wrong) == (403, "origin_not_allowed")
            rebound = {"Host": f"evil.example:{served.port}"}
            async with httpx.AsyncClient(base_url=served.http) as http:
                for name in ("evil.example", "127.evil.example", "127.0.0.1@evil.example", "["):
                    host = {"Host": f"{name}:{served.port}"}
                    answer = await http.get("/v1/models", headers=host)
                    assert answer.json()["error"]["code"] == "host_not_allowed"
                origin = rebound | {"Origin": f"http://evil.example:{served.port}"}
                assert (await http.get("/v1/models", headers=origin)).status_code == 403
                foreign = {"Origin": "https://evil.example"}
                answer = await http.post("/v1/audio/speech", json={}, headers=foreign)
                assert answer.status_code == 403
                assert "access-control-allow-origin" not in answer.headers
                friend = {"Origin": "https://friend.example"}
                wanted = {"Access-Control-Request-Headers": "authorization, x-stainless-os"}
                answer = await http.options("/v1/models", headers=friend | wanted)
                assert answer.headers["access-control-allow-origin"] == "https://friend.example"
                # Client libraries in a page add headers of their own.
                assert "x-stainless-os" in answer.headers["access-control-allow-headers"]
            async with served.session(origin=served.http):
                pass
            async with served.session(origin="https://friend.example"):
                pass

    run(test())


def test_what_ephemeral_keys_cannot_do(parts: Parts) -> None:
    """An ephemeral key opens sessions but changes nothing that outlives them, and the configuration
    stored with it is limited in size."""

    async def test() -> None:
        async with (
            serving(parts, api_keys=(KEY,)) as served,
            httpx.AsyncClient(base_url=served.http) as http,
        ):
            header, path = {"Authorization": f"Bearer {KEY}"}, "/v1/realtime/client_secrets"
            key = (await http.post(path, headers=header)).json()["value"]
            ephemeral = {"Authorization": f"Bearer {key}"}
            assert (await http.get("/v1/voices", headers=ephemeral)).status_code == 200
            for answer in (
                await http.delete("/v1/voices/default", headers=ephemeral),
                await http.post("/v1/voices", data={"name": "x"}, headers=ephemeral),
            ):
                assert answer.status_code == 403
                assert answer.json()["error"]["code"] == "ephemeral_key"
            long = {"session": {"type": "realtime", "tools": ["x" * 70_000]}}
            answer = await http.post(path, json=long, headers=header)
            assert answer.json()["error"]["code"] == "session_too_large"

    run(test())


def test_joining_a_call(parts: Parts) -> None:
    """A kind of session requested in the URL that the server lacks is refused, not replaced."""

    async def test() -> None:
        async with serving(parts) as served:
            with pytest.raises(InvalidStatus) as caught:
                async with connect(f"{served.ws}&call_id=rtc_1"):
                    pass
            assert b"unsupported" in bytes(caught.value.response.body or b"")

    run(test())
