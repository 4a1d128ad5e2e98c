"""The node agent's archive: a reproducible zip of the agent and its pinned dependencies.

The dependencies are copied from this environment, in the versions that `requirements.lock` pins: a preview
downloads nothing. They are pure Python, so the archive runs on any CPU architecture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from infra.archives import sdk, zip_file

PACKAGES: Final[Mapping[str, str]] = {**sdk.PACKAGES, "nvidia-ml-py": "pynvml.py"}
"""Direct and transitive dependencies of the agent: distribution to package or module."""

SERVICES: Final = ("autoscaling", "cloudwatch", "dynamodb", "ec2", "ecr", "s3", "secretsmanager", "ssm")
"""AWS services of ``userdata.agent.aws.clients``."""

DIRECTORY: Final = "agent"
"""Prefix of the archives in their bucket."""

_OURS: Final = ("contracts", "userdata/agent")
_LOCAL: Final = zip_file.OUT / "agent"
_OUR_FILES: Final = (".py", ".service")


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
    written = zip_file.write(_archive(), directory)
    return AgentArchive(written.path, written.sha256)


def sources(root: Path = zip_file.ROOT) -> dict[str, Path]:
    """Return the files by their path in the archive, sorted; ``root`` is the directory of our packages."""
    files = {
        "userdata/__init__.py": root / "userdata/__init__.py",
        **dict(zip_file.files(root, _OURS, _OUR_FILES)),
        **dict(sdk.files(PACKAGES, SERVICES)),
    }
    return dict(sorted(files.items()))


@cache
def _archive() -> bytes:
    return zip_file.packed("agent", sources)
