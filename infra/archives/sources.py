"""Our own packages as an archive holds them."""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
"""The folder in which the packages lie."""


def files(root: Path, packages: tuple[str, ...], suffixes: Container[str]) -> Iterator[tuple[str, Path]]:
    """Yield path in the archive and file of all files of ``packages``, folders below ``root``.

    Bytecode is left out: it would change the hash.
    """
    for package in packages:
        for file in (root / package).rglob("*"):
            if file.suffix in suffixes and "__pycache__" not in file.parts:
                yield file.relative_to(root).as_posix(), file
