"""Source files of our own packages for the archives."""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
"""The directory of the packages."""


def files(root: Path, packages: tuple[str, ...], suffixes: Container[str]) -> Iterator[tuple[str, Path]]:
    """Yield the path in the archive and the file, for all files of ``packages``, directories below ``root``.

    Bytecode is excluded: it would change the hash.
    """
    for package in packages:
        for file in (root / package).rglob("*"):
            if file.suffix in suffixes and "__pycache__" not in file.parts:
                yield file.relative_to(root).as_posix(), file
