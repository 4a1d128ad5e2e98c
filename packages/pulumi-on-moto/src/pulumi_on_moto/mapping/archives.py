"""Convert Pulumi's assets and archives into reproducible zip bytes."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

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
    files: dict[str, bytes] = {}
    _collect(archive, "", files)
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


def _collect(item: object, name: str, files: dict[str, bytes]) -> None:
    if isinstance(item, pulumi.AssetArchive):
        for key, value in item.assets.items():
            _collect(value, f"{name}/{key}" if name else key, files)
    elif isinstance(item, pulumi.FileArchive):
        _collect_path(Path(item.path), name, files)
    elif isinstance(item, pulumi.Asset):
        files[name] = asset_bytes(item)
    else:
        raise LocalCloudError(f"an archive of kind {type(item).__name__} cannot be read by the local cloud")


def _collect_path(path: Path, name: str, files: dict[str, bytes]) -> None:
    if path.is_dir():
        for entry in path.rglob("*"):
            if entry.is_file():
                relative = entry.relative_to(path).as_posix()
                files[f"{name}/{relative}" if name else relative] = entry.read_bytes()
    elif path.is_file() and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as source:
            for entry_name in source.namelist():
                if not entry_name.endswith("/"):
                    files[f"{name}/{entry_name}" if name else entry_name] = source.read(entry_name)
    else:
        raise LocalCloudError(f"archive {path}: no such folder or zip file")
