"""The archive of the functions depends on their sources and the pinned packages, and on nothing else."""

from __future__ import annotations

import hashlib
import importlib
import shutil
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from contracts import names
from infra.archives import functions as archive
from infra.archives.zip_file import ROOT


def digest(root: Path = ROOT) -> str:
    """Hash keys and contents, which is what the engine hashes."""
    whole = hashlib.sha256()
    for key, asset in archive.sources(root).items():
        whole.update(f"{key}\0".encode())
        whole.update(asset.read_bytes())
    return whole.hexdigest()


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    for package in ("contracts", "lambdas"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_the_hash_is_the_same_wherever_the_sources_lie(copied: Path) -> None:
    assert digest(copied) == digest()


def test_a_pycache_changes_nothing(copied: Path) -> None:
    before = digest(copied)
    cache = copied / "lambdas" / "core" / "__pycache__"
    cache.mkdir()
    (cache / "names.cpython-313.pyc").write_bytes(b"compiled")
    (cache / "stray.py").write_text("x = 1\n", "utf-8")
    (copied / "lambdas" / "py.typed").touch()
    assert digest(copied) == before


@pytest.mark.parametrize("changed", ["contracts/names.py", "lambdas/core/model.py"])
def test_a_change_of_a_source_changes_the_hash(copied: Path, changed: str) -> None:
    before = digest(copied)
    (copied / changed).write_text("# changed\n", "utf-8")
    assert digest(copied) != before


def test_the_handler_is_in_the_archive() -> None:
    module, _, function = names.CONTROLLER_HANDLER.rpartition(".")
    assert f"{module.replace('.', '/')}.py" in archive.sources()
    assert callable(getattr(importlib.import_module(module), function))


def test_keys_are_sorted_modules_and_tables() -> None:
    keys = list(archive.sources())
    assert keys == sorted(keys)
    packages = ("contracts/", "lambdas/", *(f"{name}/" for name in archive.PACKAGES.values()))
    assert all(key.startswith(packages) or key in archive.PACKAGES.values() for key in keys)
    assert all(key.endswith(".py") or (key.startswith("lambdas/") and key.endswith(".json")) for key in keys)


def test_every_dependency_of_powertools_is_in_it() -> None:
    for name in archive.PACKAGES:
        for requirement in map(Requirement, distribution(name).requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                assert canonicalize_name(requirement.name) in archive.PACKAGES, requirement


def test_it_can_be_sent_with_the_request_that_makes_the_function() -> None:
    # 50 MB zipped, for direct upload (Lambda guide, "Lambda quotas").
    built = archive.build()
    assert built.path.stat().st_size < 10_000_000
    with ZipFile(built.path) as packed:
        assert packed.namelist() == list(archive.sources())
