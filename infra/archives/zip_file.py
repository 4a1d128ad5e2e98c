"""Source files of our own packages, and reproducible zip files of them."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
"""The directory of the packages."""
BUILT: Final = Path(__file__).with_name("built")
"""The archives of an installed wheel (``setup.py``); a checkout has none, and packs its files."""
OUT: Final = (Path.cwd() if BUILT.is_dir() else ROOT) / "out"
"""Ignored by git; a written file stays for the next preview."""
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip file can represent."""


@dataclass(frozen=True)
class ZipFile:
    """A written file, and its SHA-256 in hexadecimal."""

    path: Path
    sha256: str


def files(root: Path, packages: tuple[str, ...], suffixes: Container[str]) -> Iterator[tuple[str, Path]]:
    """Yield the path in the archive and the file, for all files of ``packages``, directories below ``root``.

    Bytecode is excluded: it would change the hash.
    """
    for package in packages:
        for file in (root / package).rglob("*"):
            if file.suffix in suffixes and "__pycache__" not in file.parts:
                yield file.relative_to(root).as_posix(), file


def pack(files: Mapping[str, Path]) -> bytes:
    """Return a zip of ``files`` that depends only on their names and contents.

    Files are stored, not deflated: the output of deflate differs between builds of zlib, and the same sources
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


def packed(name: str, sources: Callable[[], Mapping[str, Path]]) -> bytes:
    """Return the archive that the wheel has, or a zip of ``sources()``."""
    built = BUILT / f"{name}.zip"
    return built.read_bytes() if built.is_file() else pack(sources())


def write(data: bytes, directory: Path) -> ZipFile:
    """Write ``data`` to ``directory`` under its hash, unless it exists."""
    sha256 = hashlib.sha256(data).hexdigest()
    path = directory / f"{sha256}.zip"
    if not path.is_file() or path.stat().st_size != len(data):
        directory.mkdir(parents=True, exist_ok=True)
        # Atomic, because programs of several stacks may run at the same time.
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(data)
        temporary.replace(path)
    return ZipFile(path, sha256)
