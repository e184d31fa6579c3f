"""Checks the listening address and the TLS files, and formats the server's URL.

The checks run on the main thread before the model is loaded, so a port in use or a bad certificate
is reported at once. Knows addresses and files; does not know what is served.
"""

import errno
import socket
import ssl
from pathlib import Path

from mosslive.config import ConfigError, refuse
from mosslive.errors import MossliveError

_ANY = ("", "0.0.0.0", "::")  # all addresses of this machine; a URL needs a single one


def check_address(host: str, port: int) -> None:
    """Binds the address and releases it. Raises `ConfigError` if no server can listen there.

    A name may have several addresses. An address family that this machine lacks is ignored as long
    as one address works.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        allowed = "a name or an address of this machine, such as 127.0.0.1 or 0.0.0.0"
        raise refuse("host", host, allowed) from None
    faults = [fault for one in found if (fault := _bind(one[0], one[4]))]
    for fault in faults:
        if fault.errno == errno.EADDRINUSE:
            raise ConfigError(f"Port {port} is in use; choose another or use --port 0.")
        if fault.errno == errno.EACCES:
            raise ConfigError(
                f"Port {port} needs more rights than this user has; choose 1024 or above."
            )
    if faults and len(faults) == len(found):
        raise refuse("host", host, f"an address of this machine ({faults[0].strerror})")


def check_certificate(certificate: Path | None, key: Path | None) -> None:
    """Loads both files as the TLS server will. Either both are given or neither."""
    if certificate is None or key is None:
        return
    for name, path in (("ssl_certfile", certificate), ("ssl_keyfile", key)):
        if not path.is_file():
            raise refuse(name, str(path), "a file that exists")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (OSError, ValueError) as error:
        raise MossliveError(
            f"ssl_certfile {certificate}, ssl_keyfile {key}: cannot be loaded ({error}); "
            "allowed: a certificate and its private key in PEM format"
        ) from None


def address(host: str, port: int, scheme: str) -> str:
    """The URL for programs on this machine, without a path: `http://127.0.0.1:8000`."""
    name = "localhost" if host in _ANY else host
    return f"{scheme}://[{name}]:{port}" if ":" in name else f"{scheme}://{name}:{port}"


def _bind(family: int, where: object) -> OSError | None:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # like the server
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(where)  # type: ignore[arg-type]  # from getaddrinfo
    except OSError as fault:
        return fault
    return None
