"""A local git host over TLS with its own certificate authority."""

from __future__ import annotations

import base64
import contextlib
import datetime
import hmac
import ipaddress
import os
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.served import Handler, served

_ADDRESS: Final = "127.0.0.1"
# The repository may belong to another user, and user settings must not matter.
_TRUSTING: Final = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
}
# Simulated and real clock differ, so the certificates are valid in both.
_VALID: Final = tuple(datetime.datetime(year, 1, 1, tzinfo=datetime.UTC) for year in (2020, 2100))


@dataclass(frozen=True, slots=True)
class CodeHost:
    """A running host: ``url`` has no final slash, ``authority`` is its root certificate, if it uses TLS."""

    url: str
    authority: Path | None
    requests: list[tuple[str, str]]

    def environment(self, stands_for: str, base: Mapping[str, str] | None = None) -> Mapping[str, str]:
        """Return an environment that redirects git from URLs below ``stands_for`` to this host."""
        settings = {} if base is None else base
        count = int(settings.get("GIT_CONFIG_COUNT", "0"))
        return {
            **settings,
            **({"GIT_SSL_CAINFO": str(self.authority)} if self.authority else {}),
            "GIT_CONFIG_COUNT": str(count + 1),
            f"GIT_CONFIG_KEY_{count}": f"url.{self.url}/.insteadOf",
            f"GIT_CONFIG_VALUE_{count}": f"{stands_for.rstrip('/')}/",
            "GIT_TERMINAL_PROMPT": "0",
        }


@contextlib.contextmanager
def serving(repositories: Path, certificates: Path | None, login: str = "") -> Iterator[CodeHost]:
    """Serve the repositories below a folder, protected by ``login`` (``user:password``; empty: public)."""
    requests: list[tuple[str, str]] = []
    secret = f"Basic {base64.b64encode(login.encode()).decode()}" if login else ""
    handler = type("Handler", (_Handler,), {"root": repositories, "secret": secret, "requests": requests})
    scheme, authority, tls = "http", None, None
    if certificates is not None:
        scheme, (authority, tls) = "https", certify(certificates)
    with served(handler, tls) as port:
        yield CodeHost(f"{scheme}://{_ADDRESS}:{port}", authority, requests)


class _Handler(Handler):
    """Passes each request to git by CGI (RFC 3875)."""

    root: Path
    secret: str
    requests: list[tuple[str, str]]

    def respond(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        shown = self.headers.get("Authorization", "")
        self.requests.append((path, shown))
        if self.secret and not hmac.compare_digest(shown, self.secret):
            self.answer(401, **{"WWW-Authenticate": 'Basic realm="code"'})
            return
        request = {
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(
            ["git", "http-backend"],
            input=body,
            capture_output=True,
            check=False,  # the response has the error
            env={**os.environ, **_TRUSTING, **request},
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        self.answer(int(headers.pop("Status", "200").split()[0]), content, **headers)


def certify(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """Write certificates of an authority and of a host that it signs; return the first's path, and TLS."""
    root_key, root_name = ec.generate_private_key(ec.SECP256R1()), _name("gpu-spot rehearsal")
    root = _certificate(root_name, root_name, root_key, root_key)
    root = root.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    host_key = ec.generate_private_key(ec.SECP256R1())
    host = _certificate(_name(_ADDRESS), root_name, host_key, root_key)
    host = host.add_extension(
        x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(_ADDRESS))]), critical=False
    ).add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    folder.mkdir(parents=True, exist_ok=True)
    for name, builder in (("authority.pem", root), ("host.pem", host)):
        signed = builder.sign(root_key, hashes.SHA256())
        (folder / name).write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    secret = host_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with os.fdopen(os.open(folder / "host.key", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(secret)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "host.pem", folder / "host.key")
    return folder / "authority.pem", tls


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_VALID[0])
        .not_valid_after(_VALID[1])
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
    )
