"""Lazy creation of moto's images of a region, each with its snapshot, at the first lookup.

moto creates them for every region, and again at each reset, which takes longer than most of the work in
between.
"""

from __future__ import annotations

from typing import Any, Final

from moto.ec2.models.amis import AmiBackend
from moto.ec2.models.elastic_block_store import EBSBackend

from pulumi_on_moto.fixes import Patch

_WAITING: Final = "images are waiting"
_load = AmiBackend._load_amis


def _later(backend: AmiBackend) -> None:
    backend.__dict__[_WAITING] = True


def _made_when_read(name: str) -> property:
    """Return an attribute of the backend that creates the images when read."""

    def read(backend: Any) -> Any:
        if backend.__dict__.pop(_WAITING, False):
            _load(backend)
        return backend.__dict__[name]

    def write(backend: Any, value: Any) -> None:
        backend.__dict__[name] = value

    return property(read, write)


IMAGES: Final[tuple[Patch, ...]] = (
    (AmiBackend, "_load_amis", _later),
    (AmiBackend, "amis", _made_when_read("amis")),
    (EBSBackend, "snapshots", _made_when_read("snapshots")),
)
