"""The archive of the functions depends on their sources and on nothing else."""

from __future__ import annotations

import hashlib
import importlib
import shutil
from pathlib import Path

import pytest

from infra.archives import functions as archive
from lambdas.core import names

LAMBDAS = Path(names.__file__).parents[1]


def digest(package: Path) -> str:
    """Hash keys and contents, which is what the engine hashes."""
    whole = hashlib.sha256()
    for key, asset in archive.build(package).assets.items():
        whole.update(f"{key}\0".encode())
        whole.update(Path(asset.path).read_bytes())  # type: ignore[union-attr]
    return whole.hexdigest()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    copy = tmp_path / "lambdas"
    shutil.copytree(LAMBDAS, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def test_the_hash_is_the_same_wherever_the_sources_lie(package: Path) -> None:
    assert digest(package) == digest(LAMBDAS)


def test_a_pycache_changes_nothing(package: Path) -> None:
    before = digest(package)
    cache = package / "core" / "__pycache__"
    cache.mkdir()
    (cache / "names.cpython-313.pyc").write_bytes(b"compiled")
    (cache / "stray.py").write_text("x = 1\n", "utf-8")
    (package / "py.typed").touch()
    assert digest(package) == before


def test_a_change_of_a_source_changes_the_hash(package: Path) -> None:
    before = digest(package)
    (package / "core" / "names.py").write_text("# changed\n", "utf-8")
    assert digest(package) != before


def test_the_handler_is_in_the_archive() -> None:
    module, _, function = names.CONTROLLER_HANDLER.rpartition(".")
    assert f"{module.replace('.', '/')}.py" in archive.build().assets
    assert callable(getattr(importlib.import_module(module), function))


def test_keys_are_sorted_modules_and_tables_of_lambdas() -> None:
    keys = list(archive.build().assets)
    assert keys == sorted(keys)
    assert all(key.startswith("lambdas/") and key.endswith((".py", ".json")) for key in keys)
