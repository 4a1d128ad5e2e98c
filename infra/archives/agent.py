"""The node agent's archive: the agent and its pinned dependencies, in one zip whose bytes follow from them.

The packages are those installed in this environment, whose versions `requirements.lock` pins: a preview
downloads nothing. All of them are pure Python, so the archive runs on any architecture.
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
"""What the agent imports, and what that imports: distribution → its package or module."""

SERVICES: Final = ("autoscaling", "cloudwatch", "dynamodb", "ec2", "ecr", "s3", "secretsmanager", "ssm")
"""What ``userdata.agent.aws.clients`` makes clients of. botocore describes 400 services more, in 25 MB."""

FOLDER: Final = "agent"
"""Where archives lie in their bucket."""

_OURS: Final = ("contracts", "userdata/agent")
_LOCAL: Final = ours.ROOT / "out" / "agent"
_OUR_FILES: Final = (".py", ".service")
_PACKAGE_FILES: Final = (".py", ".pem")
_MODELS: Final = ("service-2", "endpoint-rule-set-1", "paginators-1")
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can hold."""


@dataclass(frozen=True)
class AgentArchive:
    """The archive's bytes lie at ``path``; ``sha256`` is theirs, in hexadecimal."""

    path: Path
    sha256: str

    @property
    def key(self) -> str:
        """Where it lies in the bucket: another content is another object, so none is ever overwritten."""
        return f"{FOLDER}/{self.sha256}.zip"


def build(folder: Path = _LOCAL) -> AgentArchive:
    """Write the archive into ``folder``, unless it is there, and return it.

    Raises ``pulumi.RunError`` for a dependency that is not installed as the lock has it.
    """
    data = _archive()
    sha256 = hashlib.sha256(data).hexdigest()
    path = folder / f"{sha256}.zip"
    if not path.is_file() or path.stat().st_size != len(data):
        folder.mkdir(parents=True, exist_ok=True)
        # Programs of several stacks may run at once: each sees the whole file or none.
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(data)
        temporary.replace(path)
    return AgentArchive(path, sha256)


def sources(root: Path = ours.ROOT) -> dict[str, Path]:
    """Return path in the archive → file, sorted; ``root`` is the folder in which our packages lie."""
    found = {
        "userdata/__init__.py": root / "userdata/__init__.py",
        **dict(ours.files(root, _OURS, _OUR_FILES)),
        **dict(_packages()),
    }
    return dict(sorted(found.items()))


def pack(files: Mapping[str, Path]) -> bytes:
    """Return a zip of ``files`` that depends on names and contents only.

    Stored, not deflated: builds of zlib differ in what they make of the same input, and then the same agent
    would be another archive on another machine.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as target:
        for name, path in files.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system = 3  # Unix, wherever it is packed
            entry.external_attr = 0o644 << 16
            target.writestr(entry, path.read_bytes())
    return buffer.getvalue()


@cache
def _archive() -> bytes:
    return pack(sources())


def _packages() -> Iterator[tuple[str, Path]]:
    for name, package in PACKAGES.items():
        found = installed(name)
        files = [file for file in found.files or () if file.parts[0] == package]
        models = {file.parts[2:4] for file in files if _is_model(file.parts)}
        newest = {service: max(v for s, v in models if s == service) for service, _ in models}
        for file in files:
            parts = file.parts
            if "data" not in parts[:2]:
                wanted = file.suffix in _PACKAGE_FILES
            elif package == "botocore" and len(parts) == 3:  # endpoints, partitions, retries
                wanted = file.suffix == ".json"
            else:
                wanted = (
                    _is_model(parts)
                    and newest[parts[2]] == parts[3]
                    and parts[4].partition(".")[0] in _MODELS
                )
            if wanted:
                yield file.as_posix(), Path(str(found.locate_file(file)))


def _is_model(parts: tuple[str, ...]) -> bool:
    """Tell whether a file belongs to a service's model: botocore/data/<service>/<version>/<file>."""
    return parts[:2] == ("botocore", "data") and len(parts) == 5 and parts[2] in SERVICES
