"""Images of tenants: pulled if they fit on the disk; their declared volumes are bounded.

An image's ``VOLUME`` becomes an anonymous volume on the host's disk, without a limit and writable despite
``--read-only`` unless something is mounted at exactly its path (Dockerfile reference, "VOLUME"; moby,
``daemon/create_unix.go``). Each is therefore mounted over by a directory on the tenant's volume, also below
``/data``, or the image is refused.
"""

from __future__ import annotations

import json
import platform
import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from contracts.agent.names import RUN_DIR
from userdata.agent.machine import log
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import LOAD, QUICK, Host
from userdata.agent.tenants.images.secret_values import TenantSecrets
from userdata.agent.tenants.model import Tenant
from userdata.agent.work import containers
from userdata.agent.work.images import PulledImages

MOUNTED: Final = ("/data", "/log", "/tmp")  # noqa: S108 - in the container
"""Directories of a container that are on the tenant's volume anyway."""

MAX_VOLUMES: Final = 16
"""Declared volumes of an image."""

RESERVED_BYTES: Final = 10 * 2**30
"""Free space of Docker's disk that no image may take: for the system, logs and the other images' layers."""

_UNPACKED_RATIO: Final = 4
"""Bytes on the disk for a compressed byte, assumed: the compressed layer, and its files."""

_VOLUME: Final = re.compile(r"(/(?!\.\.?(/|$))[A-Za-z0-9._-]+)+")
_PROTECTED: Final = ("/proc", "/sys", "/dev", str(RUN_DIR))
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def checked_volumes(declared: Iterable[str], working_directory: str = "") -> tuple[str, ...]:
    """Return the declared volumes that need a directory, sorted.

    Raises:
        AgentError: a path is unusual, or at, above or below what the kernel or the agent mounts, or the
            working directory is there (CVE-2024-21626 was a way out through ``/proc/self/fd``).
    """
    for protected in _PROTECTED:
        if _is_in(posixpath.normpath(f"/{working_directory}"), protected):
            raise AgentError(
                f"the image has the working directory {working_directory[:100]!r}; set it elsewhere"
            )
    paths = sorted({path.rstrip("/") for path in declared})
    if len(paths) > MAX_VOLUMES:
        raise AgentError(f"the image must have at most {MAX_VOLUMES} volumes, not {len(paths)}")
    for path in paths:
        nested = any(_is_in(path, protected) or _is_in(protected, path) for protected in _PROTECTED)
        if not _VOLUME.fullmatch(path) or nested:
            raise AgentError(
                f"the image has the volume {path[:100] or '/'!r}; use a plain absolute path outside "
                f"of {', '.join(_PROTECTED)}"
            )
    return tuple(path for path in paths if path not in MOUNTED)


def _is_in(path: str, directory: str) -> bool:
    return f"/{path.lstrip('/')}/".startswith(f"{directory}/")


class _FullDiskError(AgentError):
    """An image takes more of the disk than it may."""


@dataclass(frozen=True)
class ImageStore:
    """The images on this machine.

    Args:
        host: runs Docker.
        secrets: logs in to registries.
        pulled: the images that are on the disk.
        free_bytes: returns the free space of the disk with a directory.
    """

    host: Host
    secrets: TenantSecrets
    pulled: PulledImages
    free_bytes: Callable[[str], int]

    def prepare(self, tenant: Tenant) -> tuple[str, ...]:
        """Pull a tenant's image unless it is there, and return its `checked_volumes`.

        The image is named by its digest.

        Raises:
            AgentError: the registry rejected the request or is unreachable, its secret is malformed, the
                image leaves less than ``RESERVED_BYTES`` of the disk, or a volume of it cannot be bounded.
        """
        try:
            config = self._config(tenant.image)
        except AgentError:
            with self.secrets.docker(self.host, tenant) as docker:
                self.pulled.pull(tenant.image, partial(self._pull, docker, tenant.image))
            config = self._config(tenant.image)
        return checked_volumes(config.get("Volumes") or (), str(config.get("WorkingDir") or ""))

    def _config(self, image: str) -> dict[str, Any]:
        text = self.host.run(["docker", "image", "inspect", "--format", "{{json .Config}}", image], QUICK)
        try:
            return dict(json.loads(text) or {})
        except (ValueError, TypeError) as error:
            raise AgentError(f"docker image inspect: {type(error).__name__}: {error}") from None

    def _pull(self, docker: Sequence[str], image: str) -> None:
        directory = self.host.run(["docker", "info", "--format", "{{.DockerRootDir}}"], QUICK).strip()
        compressed = self._compressed_bytes(docker, image)
        free = self.free_bytes(directory)
        if compressed is not None and _UNPACKED_RATIO * compressed > free - RESERVED_BYTES:
            raise AgentError(
                f"image of {_gib(compressed)}, which may need {_UNPACKED_RATIO} times as much: {_room(free)}"
            )

        def check_disk() -> None:
            remaining = self.free_bytes(directory)
            if remaining < RESERVED_BYTES:
                raise _FullDiskError(f"image that does not fit on the disk: {_room(remaining)}")

        try:
            # Cancelled while it is unpacked: a layer of zeros has a thousandth of its size.
            with self.host.polling(check_disk):
                self.host.run([*docker, "pull", "--quiet", image], LOAD)
            check_disk()
        except _FullDiskError:
            containers.remove_image(self.host, image)
            raise

    def _compressed_bytes(self, docker: Sequence[str], image: str) -> int | None:
        """Return the size of an image's layers in the registry, None if the registry does not say it."""
        try:
            document = self._manifest(docker, image)
            if "manifests" in document:
                document = self._manifest(docker, f"{image.partition('@')[0]}@{_digest(document)}")
            return sum(int(layer["size"]) for layer in document["layers"])
        except (AgentError, KeyError, ValueError, TypeError, StopIteration) as error:
            log.info("image size unknown before its pull", image=image, error=str(error))
            return None

    def _manifest(self, docker: Sequence[str], image: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.host.run([*docker, "manifest", "inspect", image], QUICK))
        return document


def _digest(index: dict[str, Any]) -> str:
    """Return the digest of this machine's image in an index; raises ``StopIteration``."""
    needed = "linux", _ARCHITECTURES.get(platform.machine(), "")
    of_platform = (entry for entry in index["manifests"] if _platform(entry) == needed)
    return str(next(of_platform)["digest"])


def _platform(entry: dict[str, Any]) -> tuple[str, str]:
    return str(entry["platform"]["os"]), str(entry["platform"]["architecture"])


def _room(free: int) -> str:
    return f"{_gib(free)} are free, and {_gib(RESERVED_BYTES)} of them must stay free"


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
