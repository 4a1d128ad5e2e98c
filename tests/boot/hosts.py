"""Servers beside AWS: the registry of images, as ECR with a login, and a host of git repositories."""

from __future__ import annotations

import base64
import contextlib
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pulumi_on_moto.emulator import ACCOUNT
from tests.boot.network import CLOUD, Network, serving
from tests.real import registry
from tests.real.containers import image
from tests.real.job import code_host, repository

REGISTRY: Final = f"{ACCOUNT}.dkr.ecr.us-west-2.amazonaws.com"
CODE: Final = "git.example.org"
EXAMPLE: Final = Path(__file__).parents[2] / "examples/training"
_CODE_ADDRESS: Final = "10.99.0.254"
_LOGIN: Final = f"AWS:{ACCOUNT}-auth-token"
"""moto's of ECR."""


@dataclass(frozen=True)
class Hosts:
    """What is served: an image and a revision of a job's code, the repositories, the certificate of both."""

    image: str
    revision: str
    repositories: Path
    certificate: Path

    def trusted(self, own: Path) -> None:
        """Let machines with these files in front of their image know both hosts."""
        store = own / "etc/ssl/certs/ca-certificates.crt"
        store.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.certificate, store)
        lines = ("127.0.0.1 localhost", f"{CLOUD} {REGISTRY}", f"{_CODE_ADDRESS} {CODE}")
        (own / "etc/hosts").write_text("".join(f"{line}\n" for line in lines))


def made(folder: Path) -> Hosts:
    """Make the image and the certificate."""
    for name in ("images", "repositories", "image"):
        (folder / name).mkdir(parents=True)
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    argv += ["-days", "30", "-subj", "/CN=gpu-spot", "-addext", f"subjectAltName=DNS:{REGISTRY},DNS:{CODE}"]
    key, certificate = folder / "hosts.key", folder / "hosts.pem"
    subprocess.run([*argv, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    name = registry.add_image(folder / "images", [(image(folder / "image"), 1)])
    shutil.copytree(EXAMPLE, folder / "code")
    (folder / "code" / "requirements.txt").write_text("six==1.17.0\n")
    revision = repository.made_of(folder / "code", folder / "repositories" / "training")
    return Hosts(
        f"{REGISTRY}/worker@{name.partition('@')[2]}", revision, folder / "repositories", certificate
    )


@contextlib.contextmanager
def running(hosts: Hosts, network: Network) -> Iterator[None]:
    """Serve them in the cloud's network while the body runs."""
    folder = hosts.certificate.parent
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(hosts.certificate, folder / "hosts.key")
    login = f"Basic {base64.b64encode(_LOGIN.encode()).decode()}"
    images = type("Images", (registry._Handler,), {"folder": folder / "images", "login": login})
    code = type("Code", (code_host._Handler,), {"root": hosts.repositories, "secret": "", "requests": []})
    with contextlib.ExitStack() as stack:
        for address, handler in ((CLOUD, images), (_CODE_ADDRESS, code)):
            listening = network.listen(address, 443)
            # Handshake at the first read: a slow client must not block others.
            wrapped = context.wrap_socket(listening, server_side=True, do_handshake_on_connect=False)
            stack.enter_context(serving(wrapped, handler))
        yield
