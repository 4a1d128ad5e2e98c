"""A library stands alone: run by ``alone.py``, nothing else of the repository can be imported."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = {path.name for path in ROOT.glob("packages/*/src/*")}
HEAVY = {"boto3", "keras", "moto", "numpy", "pika", "pulumi", "pulumi_aws", "torch", "transformers"}
"""What takes tenths of seconds to import."""


def names_of_the_rest(library: Path) -> list[str]:
    own = {path.name for path in (library / "src").iterdir()}
    others = {path.parent.name for path in ROOT.glob("*/__init__.py")} | LIBRARIES - own
    return sorted(name.removesuffix(".py") for name in others if not name.startswith((".", "__")))


@pytest.mark.skipif(not sys.flags.no_site, reason="python -I -S packages/alone.py NAME shows it")
def test_the_rest_of_the_repository_is_out_of_reach(pytestconfig: pytest.Config) -> None:
    names = names_of_the_rest(pytestconfig.rootpath)
    assert {"contracts", "userdata"} <= set(names)
    assert [name for name in names if importlib.util.find_spec(name)] == []


def test_its_tests_import_nothing_of_the_rest(pytestconfig: pytest.Config) -> None:
    """Those on frameworks or a broker run where the rest can be imported."""
    imported = set()
    for path in (pytestconfig.rootpath / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom):
                imported.add(str(node.module).partition(".")[0])
            elif isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
    assert "pytest" in imported
    assert imported.isdisjoint([*names_of_the_rest(pytestconfig.rootpath), "tests", "packages"])


def test_importing_it_imports_nothing_heavy(pytestconfig: pytest.Config) -> None:
    [face] = (pytestconfig.rootpath / "src").glob("*/__init__.py")
    code = f"import json, sys; sys.path[:] = {sys.path!r}; import {face.parent.name}\n"
    code += "print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], stdout=subprocess.PIPE, check=True)
    loaded = set(json.loads(done.stdout))
    assert face.parent.name in loaded
    assert loaded & HEAVY == set()
