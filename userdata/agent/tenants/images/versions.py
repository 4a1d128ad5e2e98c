"""Least versions of what separates tenants on a host: below them, or where unknown, no tenant starts.

Each is the first release of its line without a known way out of a container for an image or a program in it.
A distribution that repairs an older version is refused, too: its version does not say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import QUICK, Host

ProgramVersion = tuple[int, ...]


@dataclass(frozen=True)
class Component:
    """A program, how it says its version, and the first version without ``cve`` of each release line.

    A version counts if it is at least the one of its line (the same ``line_length`` first numbers), or newer
    than all lines. ``source`` is the advisory.
    """

    name: str
    command: tuple[str, ...]
    fixed: tuple[ProgramVersion, ...]
    cve: str
    source: str
    line_length: int = 2
    needs_gpus: bool = False

    def is_fixed(self, version: ProgramVersion) -> bool:
        """Return whether a version is one without the vulnerability."""
        line = version[: self.line_length]
        lines = {fixed[: self.line_length]: fixed for fixed in self.fixed}
        return version >= lines[line] if line in lines else line > max(lines)


COMPONENTS: Final = (
    Component(
        "runc",
        ("runc", "--version"),
        ((1, 2, 8), (1, 3, 3), (1, 4, 0)),
        "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881",  # and CVE-2024-21626, fixed in 1.1.12
        "GHSA-9493-h29p-rfm2, GHSA-qw9x-cqr3-wc7r, GHSA-cgrx-mc8f-2prm",
    ),
    Component(
        "containerd",
        ("containerd", "--version"),
        ((1, 7, 29), (2, 0, 7), (2, 1, 5), (2, 2, 0)),
        "CVE-2024-25621",
        "GHSA-pwhc-rpq9-4c8w",
    ),
    Component(
        "Docker",
        ("docker", "version", "--format", "{{.Server.Version}}"),
        ((25, 0, 13), (28, 0, 0)),
        "CVE-2025-54410",
        "GHSA-4vq8-7jfc-9cvp",
        line_length=1,
    ),
    Component(
        "NVIDIA Container Toolkit",
        ("nvidia-ctk", "--version"),
        ((1, 19, 1),),
        "CVE-2026-24260",  # and CVE-2025-23266, fixed in 1.17.8; CVE-2024-0132, fixed in 1.16.2
        "NVIDIA security bulletin 5850; ALAS2023NVIDIA-2026-297",
        needs_gpus=True,
    ),
    Component(
        "NVIDIA driver",
        ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        ((580, 178, 4), (595, 91, 7), (610, 57, 4), (615, 71, 9)),
        "CVE-2026-47501",  # an out-of-bounds write in the kernel by a user of a GPU
        "NVIDIA security bulletin 5861",
        line_length=1,
        needs_gpus=True,
    ),
)

_VERSION: Final = re.compile(r"(?<![\w.])v?(\d+(?:\.\d+)+)")


def parse_version(text: str) -> ProgramVersion | None:
    """Return the first version in a program's output, None without one; a release candidate is none.

    ``1.4.0-rc.3`` may lack what 1.4.0 has; ``1.7.29-1.amzn2023`` is a package of 1.7.29.
    """
    matched = _VERSION.search(text)
    if matched is None or re.match(r"[-~+]?(rc|alpha|beta|dev)", text[matched.end() :]):
        return None
    return tuple(int(number) for number in matched[1].split("."))


def outdated(host: Host, *, has_gpus: bool) -> tuple[str, ...]:
    """Return for each program that is below its least version, or of unknown version, what is needed."""
    return tuple(_outdated(host, has_gpus))


def _outdated(host: Host, has_gpus: bool) -> Iterator[str]:
    for component in COMPONENTS:
        if component.needs_gpus and not has_gpus:
            continue
        try:
            version = parse_version(host.run(list(component.command), QUICK))
        except AgentError:
            version = None
        if version is None or not component.is_fixed(version):
            present = "of unknown version" if version is None else ".".join(map(str, version))
            fixed = ", ".join(".".join(map(str, first)) for first in component.fixed)
            yield f"{component.name} {present} is vulnerable ({component.cve}); install {fixed} or newer"
