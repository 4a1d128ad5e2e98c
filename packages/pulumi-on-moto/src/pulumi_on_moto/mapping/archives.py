"""Convert Pulumi's assets and archives into reproducible zip bytes."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pulumi

from pulumi_on_moto.errors import LocalCloudError

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time of a zip entry; a fixed time makes archives reproducible."""


def zip_bytes(archive: pulumi.Archive | pulumi.Asset) -> bytes:
    """Return an archive as a zip with sorted entries and fixed times and modes.

    A ``FileArchive`` or ``FileAsset`` that is already a zip is returned unchanged.

    Raises:
        LocalCloudError: a path is missing, or the kind of asset is not supported.
    """
    if isinstance(archive, pulumi.FileAsset | pulumi.FileArchive):
        path = Path(archive.path)
        if path.is_file() and zipfile.is_zipfile(path):
            return path.read_bytes()
    files = {str(name): content for name, content in _files(archive, PurePosixPath())}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            target.writestr(entry, files[name])
    return buffer.getvalue()


def asset_bytes(asset: pulumi.Asset) -> bytes:
    """Return the content of a single asset."""
    if isinstance(asset, pulumi.StringAsset):
        return asset.text.encode("utf-8")
    if isinstance(asset, pulumi.FileAsset):
        try:
            return Path(asset.path).read_bytes()
        except OSError as error:
            raise LocalCloudError(f"asset {asset.path}: {error.strerror}") from None
    raise LocalCloudError(f"an asset of kind {type(asset).__name__} cannot be read by the local cloud")


def _files(item: object, name: PurePosixPath) -> Iterator[tuple[PurePosixPath, bytes]]:
    if isinstance(item, pulumi.AssetArchive):
        for key, value in item.assets.items():
            yield from _files(value, name / key)
    elif isinstance(item, pulumi.FileArchive):
        yield from _files_at(Path(item.path), name)
    elif isinstance(item, pulumi.Asset):
        yield name, asset_bytes(item)
    else:
        raise LocalCloudError(f"an archive of kind {type(item).__name__} cannot be read by the local cloud")


def _files_at(path: Path, name: PurePosixPath) -> Iterator[tuple[PurePosixPath, bytes]]:
    if path.is_dir():
        files = (entry for entry in path.rglob("*") if entry.is_file())
        yield from ((name / entry.relative_to(path), entry.read_bytes()) for entry in files)
    elif path.is_file() and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as source:
            entries = [entry for entry in source.namelist() if not entry.endswith("/")]
            yield from ((name / entry, source.read(entry)) for entry in entries)
    else:
        raise LocalCloudError(f"archive {path}: no such folder or zip file")
