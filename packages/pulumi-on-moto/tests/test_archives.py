"""Archives depend on content alone."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pulumi
import pytest

from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.mapping.archives import zip_bytes


def test_bytes_do_not_depend_on_order_or_time(tmp_path: Path) -> None:
    (tmp_path / "b.py").write_text("b = 1\n")
    one = zip_bytes(
        pulumi.AssetArchive(
            {"a.py": pulumi.StringAsset("a"), "b.py": pulumi.FileAsset(str(tmp_path / "b.py"))}
        )
    )
    (tmp_path / "b.py").touch()
    two = zip_bytes(
        pulumi.AssetArchive(
            {"b.py": pulumi.FileAsset(str(tmp_path / "b.py")), "a.py": pulumi.StringAsset("a")}
        )
    )
    assert one == two


def test_folders_and_zips_nest(tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "x.txt").write_text("x")
    packed = tmp_path / "in.zip"
    packed.write_bytes(zip_bytes(pulumi.FileArchive(str(tmp_path / "in"))))
    assert zip_bytes(pulumi.FileArchive(str(packed))) == packed.read_bytes()
    archive = pulumi.AssetArchive(
        {"folder": pulumi.FileArchive(str(tmp_path / "in")), "zip": pulumi.FileArchive(str(packed))}
    )
    with zipfile.ZipFile(io.BytesIO(zip_bytes(archive))) as made:
        assert made.read("folder/deep/x.txt") == made.read("zip/deep/x.txt") == b"x"


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(LocalCloudError, match="no such folder or zip file"):
        zip_bytes(pulumi.FileArchive(str(tmp_path / "none")))
