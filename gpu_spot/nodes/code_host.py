"""A code host on this machine: git over TLS, with an authority of its own, as a real one is spoken to.

``git upload-pack`` answers, by the "smart" protocol (git's documentation, gitprotocol-http). Its name is that
of a real host: who asks is led here by ``environment``, and checks the certificate as it would there.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import gzip
import hmac
import ipaddress
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_HERE: Final = "127.0.0.1"
_SERVICE: Final = "git-upload-pack"
# Whoever rehearses may have another clock than the git that looks at the certificates.
_VALID: Final = tuple(datetime.datetime(year, 1, 1, tzinfo=datetime.UTC) for year in (2020, 2100))


@dataclass(frozen=True, slots=True)
class CodeHost:
    """A running one: ``url`` ends without a slash, ``authority`` is the file with its root certificate."""

    url: str
    authority: Path

    def environment(self, stands_for: str, given: Mapping[str, str] | None = None) -> Mapping[str, str]:
        """Return what leads git here that asks for something below ``stands_for``, such as a host's URL.

        It is added to the environment that is given, and to the settings of git in it.

        Source: git's documentation, git-config: "GIT_CONFIG_COUNT", "http.sslCAInfo", "url.<base>.insteadOf".
        """
        around = {} if given is None else given
        count = int(around.get("GIT_CONFIG_COUNT", "0"))
        return {
            **around,
            "GIT_SSL_CAINFO": str(self.authority),
            "GIT_CONFIG_COUNT": str(count + 1),
            f"GIT_CONFIG_KEY_{count}": f"url.{self.url}/.insteadOf",
            f"GIT_CONFIG_VALUE_{count}": f"{stands_for.rstrip('/')}/",
            "GIT_TERMINAL_PROMPT": "0",
        }


@contextlib.contextmanager
def serving(repositories: Path, certificates: Path, login: str = "") -> Iterator[CodeHost]:
    """Serve the bare repositories below a folder to who knows ``login`` (``user:password``; empty: to all).

    ``certificates`` is an empty folder for keys and certificates.
    """
    authority = _certify(certificates)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "host.pem", certificates / "host.key")

    class Handler(_Handler):
        root = repositories.resolve()
        secret = base64.b64encode(login.encode()).decode() if login else ""

    server = ThreadingHTTPServer((_HERE, 0), Handler)
    server.daemon_threads = True
    # Not before it is read: a client that is slow at its handshake keeps nobody else waiting.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, name="code host", daemon=True)
    thread.start()
    try:
        yield CodeHost(f"https://{_HERE}:{server.server_address[1]}", authority)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    """Two requests make a fetch: what is there, and give me this."""

    root: Path
    secret = ""

    def do_GET(self) -> None:
        """Tell the references of a repository."""
        url = urlsplit(self.path)
        repository = self._repository(url.path, "/info/refs")
        if parse_qs(url.query).get("service") != [_SERVICE]:
            self.send_error(403, "only fetched from here")
        elif repository is not None:
            told = self._git(repository, "--advertise-refs")
            line = f"# service={_SERVICE}\n"
            self._answer(f"{len(line) + 4:04x}{line}0000".encode() + told, "advertisement")

    def do_POST(self) -> None:
        """Give out a pack."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        repository = self._repository(self.path, f"/{_SERVICE}")
        if repository is not None:
            self._answer(self._git(repository, body=body), "result")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name is the base class's)
        """Say nothing: who fetches sees what went wrong."""

    def _repository(self, path: str, ending: str) -> Path | None:
        """Return the repository that is asked for; None once it was answered that there is none."""
        given = self.headers.get("Authorization", "").removeprefix("Basic ")
        if self.secret and not hmac.compare_digest(given, self.secret):
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="code"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return None
        found = (self.root / path.removesuffix(ending).lstrip("/")).resolve()
        if not path.endswith(ending) or self.root not in found.parents or not (found / "HEAD").is_file():
            self.send_error(404, "no such repository")
            return None
        return found

    def _git(self, repository: Path, *options: str, body: bytes = b"") -> bytes:
        version = self.headers.get("Git-Protocol", "")
        done = subprocess.run(  # noqa: S603
            ["git", "upload-pack", "--stateless-rpc", *options, str(repository)],  # noqa: S607
            input=body,
            capture_output=True,
            check=False,  # what is wrong with a request stands in the answer
            # Whoever made the repository may not be who serves it.
            env={
                **os.environ,
                "GIT_PROTOCOL": version,
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "safe.directory",
                "GIT_CONFIG_VALUE_0": "*",
            },
        )
        return done.stdout

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", f"application/x-{_SERVICE}-{kind}")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _certify(folder: Path) -> Path:
    """Write an authority's certificate, and the host's key and certificate; return the first."""
    root_key, root_name = ec.generate_private_key(ec.SECP256R1()), _name("gpu-spot rehearsal")
    root = _certificate(root_name, root_name, root_key, root_key)
    root = root.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    host_key = ec.generate_private_key(ec.SECP256R1())
    host = _certificate(_name(_HERE), root_name, host_key, root_key)
    host = host.add_extension(
        x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(_HERE))]), critical=False
    ).add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    folder.mkdir(parents=True, exist_ok=True)
    for name, made in (("authority.pem", root), ("host.pem", host)):
        signed = made.sign(root_key, hashes.SHA256())
        (folder / name).write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    secret = host_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with os.fdopen(os.open(folder / "host.key", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(secret)
    return folder / "authority.pem"


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
