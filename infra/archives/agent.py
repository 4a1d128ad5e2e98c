"""The node agent's archive: a reproducible zip of the agent and its pinned dependencies.

The dependencies are copied from this environment, in the versions that `requirements.lock` pins: a preview
downloads nothing. They are pure Python, so the archive runs on any CPU architecture.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from infra.archives import sources as ours
from infra.archives.pins import installed

PACKAGES: Final[Mapping[str, str]] = {
    "boto3": "boto3",
    "botocore": "botocore",
    "jmespath": "jmespath",
    "nvidia-ml-py": "pynvml.py",
    "python-dateutil": "dateutil",
    "s3transfer": "s3transfer",
    "six": "six.py",
    "urllib3": "urllib3",
}
"""Direct and transitive dependencies of the agent: distribution to package or module."""

SERVICES: Final = ("autoscaling", "cloudwatch", "dynamodb", "ec2", "ecr", "s3", "secretsmanager", "ssm")
"""AWS services of ``userdata.agent.aws.clients``. botocore has models of 400 more services, which take 25
MB."""

DIRECTORY: Final = "agent"
"""Prefix of the archives in their bucket."""

_OURS: Final = ("contracts", "userdata/agent")
_LOCAL: Final = ours.ROOT / "out" / "agent"
_OUR_FILES: Final = (".py", ".service")
_PACKAGE_FILES: Final = (".py", ".pem")
_MODELS: Final = ("service-2", "endpoint-rule-set-1", "paginators-1")
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip file can represent."""


@dataclass(frozen=True)
class AgentArchive:
    """The archive: its file, and the SHA-256 of the file in hexadecimal."""

    path: Path
    sha256: str

    @property
    def key(self) -> str:
        """Key in the bucket. It depends on the content, so no object is ever overwritten."""
        return f"{DIRECTORY}/{self.sha256}.zip"


def build(directory: Path = _LOCAL) -> AgentArchive:
    """Write the archive to ``directory``, unless it exists, and return it.

    Raises:
        pulumi.RunError: a dependency is not installed in the version of the lock.
    """
    data = _archive()
    sha256 = hashlib.sha256(data).hexdigest()
    path = directory / f"{sha256}.zip"
    if not path.is_file() or path.stat().st_size != len(data):
        directory.mkdir(parents=True, exist_ok=True)
        # Atomic, because programs of several stacks may run at the same time.
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(data)
        temporary.replace(path)
    return AgentArchive(path, sha256)


def sources(root: Path = ours.ROOT) -> dict[str, Path]:
    """Return the files by their path in the archive, sorted; ``root`` is the directory of our packages."""
    files = {
        "userdata/__init__.py": root / "userdata/__init__.py",
        **dict(ours.files(root, _OURS, _OUR_FILES)),
        **dict(_packages()),
    }
    return dict(sorted(files.items()))


def pack(files: Mapping[str, Path]) -> bytes:
    """Return a zip of ``files`` that depends only on their names and contents.

    Files are stored, not deflated: the output of deflate differs between builds of zlib, and the same agent
    must be the same archive on every machine.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as target:
        for name, path in files.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system = 3  # Unix, on every platform
            entry.external_attr = 0o644 << 16
            target.writestr(entry, path.read_bytes())
    return buffer.getvalue()


@cache
def _archive() -> bytes:
    return pack(sources())


def _packages() -> Iterator[tuple[str, Path]]:
    for name, package in PACKAGES.items():
        distribution = installed(name)
        files = [file for file in distribution.files or () if file.parts[0] == package]
        models = {file.parts[2:4] for file in files if _is_model(file.parts)}
        newest = {service: max(v for s, v in models if s == service) for service, _ in models}
        for file in files:
            parts = file.parts
            if "data" not in parts[:2]:
                is_included = file.suffix in _PACKAGE_FILES
            elif package == "botocore" and len(parts) == 3:  # endpoints, partitions, retries
                is_included = file.suffix == ".json"
            else:
                is_included = (
                    _is_model(parts)
                    and newest[parts[2]] == parts[3]
                    and parts[4].partition(".")[0] in _MODELS
                )
            if is_included:
                yield file.as_posix(), Path(str(distribution.locate_file(file)))


def _is_model(parts: tuple[str, ...]) -> bool:
    """Return whether a file belongs to the model of a service: botocore/data/<service>/<version>/<file>."""
    return parts[:2] == ("botocore", "data") and len(parts) == 5 and parts[2] in SERVICES
