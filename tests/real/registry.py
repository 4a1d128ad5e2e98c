"""A registry of images that asks for a password, for a Docker daemon on the same network.

It serves what Docker needs to pull by digest. Source: OCI distribution specification, "Pulling manifests",
"Pulling blobs"; image manifest and image layer specifications.

    python -m tests.real.registry FOLDER PORT USER PASSWORD
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

PORT: Final = 5005
USER: Final = "puller"
PASSWORD: Final = "open sesame"
NAME: Final = f"127.0.0.1:{PORT}/lab/private"
"""Docker asks registries on the loopback network without TLS."""
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
_ZEROS: Final = bytes(16 * 2**20)


def add_image(folder: Path, layer: Iterable[tuple[bytes, int]]) -> str:
    """Store an image of one layer; return its name. ``layer`` are parts of a tar, each so many times."""
    packed, unpacked = bytearray(), hashlib.sha256()
    for part, times in layer:
        compressor = zlib.compressobj(wbits=31)
        packed += (compressor.compress(part) + compressor.flush()) * times  # members of a gzip file
        for _ in range(times):
            unpacked.update(part)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{unpacked.hexdigest()}"]},
    }
    blobs = [_described(folder, _CONFIG, json.dumps(config).encode()), _described(folder, _LAYER, packed)]
    manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": blobs[0], "layers": blobs[1:]}
    return f"{NAME}@{_described(folder, _MANIFEST, json.dumps(manifest).encode())['digest']}"


def bomb(size_mib: int) -> list[tuple[bytes, int]]:
    """Return a layer with one file of zeros, which is a thousandth of its size while it is packed."""
    entry = tarfile.TarInfo("zeros")
    entry.size = size_mib * 2**20
    head = entry.tobuf()
    return [(head, 1), (_ZEROS, entry.size // len(_ZEROS)), (bytes(2 * tarfile.BLOCKSIZE), 1)]


def _described(folder: Path, kind: str, content: bytes | bytearray) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    (folder / digest).write_bytes(content)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}


@contextlib.contextmanager
def registry(inside: Sequence[str], folder: Path) -> Iterator[None]:
    """Serve the images in a folder, on the network that ``inside`` enters."""
    argv = [*inside, sys.executable, "-m", __name__, str(folder), str(PORT), USER, PASSWORD]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            yield
        finally:
            server.kill()


class _Handler(BaseHTTPRequestHandler):
    folder: Path
    login: str

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def log_message(self, *_: object) -> None: ...

    def _answer(self, *, with_body: bool) -> None:
        path = self.folder / self.path.rpartition("sha256:")[2]
        if self.headers.get("Authorization") != self.login:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="lab"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.path != "/v2/" and not path.is_file():
            self.send_error(404)
            return
        self.send_response(200)
        content = io.BytesIO() if self.path == "/v2/" else path.open("rb")
        size = 0 if self.path == "/v2/" else path.stat().st_size
        self.send_header(
            "Content-Type", _MANIFEST if "/manifests/" in self.path else "application/octet-stream"
        )
        self.send_header("Content-Length", str(size))
        self.send_header("Docker-Content-Digest", f"sha256:{path.name}")
        self.end_headers()
        with content, contextlib.suppress(ConnectionError):
            while with_body and (part := content.read(2**20)):
                self.wfile.write(part)


def main(folder: str, port: str, user: str, password: str) -> None:
    """Serve until the process is ended."""
    _Handler.folder = Path(folder)
    _Handler.login = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), _Handler)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
