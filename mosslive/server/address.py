"""Where the server listens: whether it can, and what to type into a browser to get there.

Asked before anything is loaded, so that a taken port or a wrong certificate is said in a sentence
at once. Knows addresses and files, nothing of what is served.
"""

import errno
import socket
import ssl
from pathlib import Path

from mosslive.config import refuse
from mosslive.errors import MossliveError

_ANY = ("", "0.0.0.0", "::")  # every address of this machine; a browser needs one


def check_address(host: str, port: int) -> None:
    """Binds and lets go. A name may have several addresses; those of a kind this machine does not
    have are passed over, as long as one is left."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        allowed = "a name or an address of this machine, such as 127.0.0.1 or 0.0.0.0"
        raise refuse("host", host, allowed) from None
    faults = [fault for one in found if (fault := _bind(one[0], one[4]))]
    for fault in faults:
        if fault.errno == errno.EADDRINUSE:
            allowed = f"one that is free: another program listens at {host}; 0 takes any free one"
            raise refuse("port", port, allowed)
        if fault.errno == errno.EACCES:
            raise refuse("port", port, "one this user may listen at, such as 1024 or more")
    if faults and len(faults) == len(found):
        raise refuse("host", host, f"an address of this machine ({faults[0].strerror})")


def check_certificate(certificate: Path | None, key: Path | None) -> None:
    """As TLS will read them; both or none are given."""
    if certificate is None or key is None:
        return
    for name, path in (("ssl_certfile", certificate), ("ssl_keyfile", key)):
        if not path.is_file():
            raise refuse(name, str(path), "a file that exists")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (OSError, ValueError) as error:
        raise MossliveError(
            f"ssl_certfile {certificate}, ssl_keyfile {key}: not a certificate and its key in PEM "
            f"form ({error})"
        ) from None


def address(host: str, port: int, scheme: str) -> str:
    """For a program on this machine, without a path: `http://127.0.0.1:8000`."""
    name = "localhost" if host in _ANY else host
    return f"{scheme}://[{name}]:{port}" if ":" in name else f"{scheme}://{name}:{port}"


def _bind(family: int, where: object) -> OSError | None:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(where)  # type: ignore[arg-type]  # as getaddrinfo gave it
    except OSError as fault:
        return fault
    return None
