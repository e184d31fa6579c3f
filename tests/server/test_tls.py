"""A server with a certificate."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from tests.server.rig import Parts, run, serving


def test_tls(parts: Parts, tmp_path: Path) -> None:
    """With a certificate the server accepts only https and wss."""
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
