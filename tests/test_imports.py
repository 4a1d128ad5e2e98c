"""What a file imports from our own code is there: also in scripts that only long runs start."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.test_repository import FILES, ROOT

SOURCES = [ROOT, *ROOT.glob("packages/*/src"), ROOT / "packages", *ROOT.glob("packages/*/tests")]
SCRIPTS = [path for path in FILES if path.suffix == ".py"]
ALL = "*"
"""A name of a module with names that only it knows."""


@cache
def module(name: str) -> Path | None:
    """Return a module's file, or the folder of a package without one; None: it is not ours."""
    paths = [source.joinpath(*name.split(".")) for source in SOURCES]
    for path in paths:
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.exists():
                return file
    return next((path for path in paths if any(path.glob("*.py"))), None)


@cache
def read(path: Path) -> tuple[frozenset[str], list[tuple[str, str, int]]]:
    """Return the names that a module defines or imports anywhere; and module, name and line of imports."""
    if path.is_dir():
        return frozenset(), []
    names, imported = set(), []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(ALL if node.name == "__getattr__" else node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
            if isinstance(node, ast.ImportFrom) and node.module:
                imported += [(node.module, alias.name, node.lineno) for alias in node.names]
    return frozenset(names), imported


def missing(path: Path) -> list[str]:
    """Return what a file imports and is not there."""
    result = []
    for source, name, line in read(path)[1]:
        if module(source.partition(".")[0]):
            file = module(source)
            known = read(file)[0] if file else frozenset()
            if not {name, ALL} & known and module(f"{source}.{name}") is None:
                result.append(f"{source}.{name}, line {line}")
    return result


def test_what_is_imported_of_ours_is_there() -> None:
    assert {str(path.relative_to(ROOT)): gone for path in SCRIPTS if (gone := missing(path))} == {}


@pytest.mark.parametrize("name", ["contracts.names", "contracts.nothing", "spot_training.levels"])
def test_what_is_not_there_is_seen(tmp_path: Path, name: str) -> None:
    (script := tmp_path / "script.py").write_text(f"from {name} import nothing\nfrom numpy import nothing\n")
    assert missing(script) == [f"{name}.nothing, line 1"]
