"""The first start of `mosslive serve`: what it prints when it can start and when it cannot."""

import json
import os
import pty
import re
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mosslive import MossliveError
from mosslive.server.address import address, check_address
from mosslive.server.run import make_server
from mosslive.server.settings import ServerSettings
from tests.server.rig import WAIT_S, settings


def serve(*flags: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mosslive", "serve", *map(str, flags)]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)


def test_a_port_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port in use gives one sentence with the port and what to do, before anything is loaded; a
    misspelt variable is a warning in the log before it."""
    monkeypatch.setenv("MOSSLIVE_PROT", "8000")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = serve("--port", str(port), "--model", "nowhere")
    assert done.returncode == 1
    warning, line = done.stderr.splitlines()
    assert json.loads(warning)["message"].endswith("did you mean MOSSLIVE_PORT?")
    assert line == f"mosslive: Port {port} is in use; choose another or use --port 0."


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"host": "no-such-host.invalid"}, "host is 'no-such-host.invalid'; allowed: a name or"),
        ({"host": "192.0.2.1"}, "host is '192.0.2.1'; allowed: an address of this machine"),
        (
            {"ssl_certfile": Path("no.pem"), "ssl_keyfile": Path(__file__)},
            "ssl_certfile is 'no.pem'",
        ),
        (
            {"ssl_certfile": Path(__file__), "ssl_keyfile": Path("no.key")},
            "ssl_keyfile is 'no.key'",
        ),
        (
            {"ssl_certfile": Path(__file__), "ssl_keyfile": Path(__file__)},
            "allowed: a certificate and its private key in PEM format",
        ),
    ],
)
def test_bad_addresses_and_certificates(changes: dict[str, object], message: str) -> None:
    """The error names the setting, its value and the allowed values, before anything is loaded."""
    given: ServerSettings = settings(no_auth=True, **changes)
    with pytest.raises(MossliveError) as caught:
        make_server(given)
    assert message in str(caught.value)


def test_the_address_check_releases_the_address() -> None:
    """The check for a free address does not keep it, and handles names with several addresses."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    for _ in range(2):
        check_address("127.0.0.1", port)
    check_address("localhost", 0)


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://localhost:80"),
        ("::", "http://localhost:80"),
        ("::1", "http://[::1]:80"),
    ],
)
def test_urls_for_a_browser(host: str, shown: str) -> None:
    """The printed address can be opened as it is."""
    assert address(host, 80, "http") == shown


def test_at_a_terminal(nano_folder: Path) -> None:
    """At a terminal the server prints the page's address when it is ready, what is missing for
    speech and how to stop it, and Ctrl-C stops it."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "mosslive", "serve", "--port", "0", "--model", nano_folder]
    process = subprocess.Popen(list(map(str, command)), stderr=theirs, stdin=theirs)
    os.close(theirs)
    shown, end = "", time.monotonic() + WAIT_S
    try:
        while "mosslive: ready." not in shown or not shown.endswith("\n"):
            assert time.monotonic() < end, shown
            if select.select([ours], [], [], 1)[0]:
                shown += os.read(ours, 4096).decode()
        assert re.search(r"Open http://127\.0\.0\.1:\d+/ in a browser", shown)
        assert "no codec" in shown
        process.send_signal(2)
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
