"""Hygiene of the whole tree: what a reviewer would otherwise have to look for by hand."""

from __future__ import annotations

import ast
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.waiting import run_process

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
DISTRIBUTIONS = {
    "pulumi_on_moto": ROOT / "packages" / "pulumi-on-moto",
    "spot_training": ROOT / "packages" / "spot-training",
    "spot_work": ROOT / "packages" / "spot-work",
}
DISTRIBUTION_PROJECTS = [
    tomllib.loads((folder / "pyproject.toml").read_text("utf-8")) for folder in DISTRIBUTIONS.values()
]
DEPENDENCIES = [
    one for project in (PYPROJECT, *DISTRIBUTION_PROJECTS) for one in project["project"]["dependencies"]
]
LOCK = (ROOT / "requirements.lock").read_text("utf-8")
PACKAGES = ("gpu_spot", "infra", "lambdas", "policy", *DISTRIBUTIONS, "userdata")
SOURCES = {name: ROOT / name for name in PACKAGES} | {
    name: folder / "src" / name for name, folder in DISTRIBUTIONS.items()
}

MAX_PYTHON_LINES = 500
MACHINE_PATH = re.compile(r"(?:^|[^\w.$}])/(?:work|root|Users)/")
INDEX_ADDRESS = re.compile(
    r"(?:--(?:extra-)?index-url|--find-links)[ =]\S|files\.pythonhosted|pypi\.[a-z]+/simple"
)
CREDENTIAL = re.compile(r"\b(?:AKIA|ASIA)(?!IOSFODNN7)[A-Z0-9]{16}\b|-----BEGIN [A-Z ]*PRIVATE KEY-----")


def repository_files() -> list[Path]:
    """Every file that git holds or would add; in an unpacked archive every file that is not an output."""
    if shutil.which("git") and (ROOT / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = run_process(command, cwd=ROOT, check=True).stdout
        paths = [ROOT / name for name in listed.split("\0") if name]
    else:
        ignored = {"out", "build", "dist", "__pycache__", ".venv"}
        paths = [path for path in ROOT.rglob("*") if not ignored.intersection(path.relative_to(ROOT).parts)]
    return [path for path in paths if path.is_file()]


FILES = repository_files()


def lines(pattern: re.Pattern[str]) -> Iterator[str]:
    for path in FILES:
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue  # a picture
        for number, line in enumerate(text.splitlines(), start=1):
            if pattern.search(line):
                yield f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"


@pytest.mark.parametrize(
    "pattern", [MACHINE_PATH, INDEX_ADDRESS, CREDENTIAL], ids=["machine path", "index", "credential"]
)
def test_no_file_holds(pattern: re.Pattern[str]) -> None:
    assert not list(lines(pattern))


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (MACHINE_PATH, 'open("/' + 'work/main/x")'),
        (INDEX_ADDRESS, "--index-" + "url https://example.org/simple"),
        (CREDENTIAL, "AKIA" + "ABCDEFGHIJKLMNOP"),
    ],
)
def test_the_patterns_find_what_they_forbid(pattern: re.Pattern[str], text: str) -> None:
    assert pattern.search(text)


def test_no_python_file_is_too_long() -> None:
    sizes = {path: len(path.read_text("utf-8").splitlines()) for path in FILES if path.suffix == ".py"}
    assert not {str(path.relative_to(ROOT)): n for path, n in sizes.items() if n > MAX_PYTHON_LINES}


def test_every_test_file_is_collected() -> None:
    tests = [path for path in FILES if path.is_relative_to(ROOT / "tests") and path.suffix == ".py"]
    assert not [
        path
        for path in tests
        if not path.name.startswith("test_") and re.search(r"^def test_", path.read_text("utf-8"), re.M)
    ]


def test_every_folder_of_a_package_is_a_package() -> None:
    folders = {
        path.parent
        for path in FILES
        if path.suffix == ".py" and any(path.is_relative_to(source) for source in SOURCES.values())
    }
    assert not [folder for folder in folders if not (folder / "__init__.py").is_file()]


def test_the_lock_has_a_pin_and_a_hash_for_every_package_and_no_address() -> None:
    assert "://" not in LOCK
    entries = re.split(r"\n(?=[A-Za-z0-9])", "\n" + re.sub(r"^ *#.*\n", "", LOCK, flags=re.M))[1:]
    assert entries
    assert not [
        entry.splitlines()[0]
        for entry in entries
        if "--hash=sha256:" not in entry or "==" not in entry.splitlines()[0]
    ]


def test_the_lock_satisfies_what_pyproject_asks_for() -> None:
    pins = {
        canonicalize_name(name): version
        for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^ \\]+)", LOCK, re.M)
    }
    asked = [Requirement(one) for one in (*DEPENDENCIES, *PYPROJECT["dependency-groups"]["dev"])]
    assert not [
        str(one) for one in asked if not one.specifier.contains(pins.get(canonicalize_name(one.name), "0"))
    ]


@pytest.mark.long
def test_a_clone_without_make_setup_gets_the_lock_by_the_engine() -> None:
    # The engine makes an environment and installs what stands beside the program, wherever it was called.
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--dry-run", "--quiet"]
    asked = [*pip, "--requirement", str(ROOT / "infra" / "requirements.txt")]
    done = run_process(asked, cwd="/", timeout=400)  # it computes for seconds: minutes on a busy machine
    assert done.returncode == 0, done.stderr
    assert (ROOT / "infra" / "requirements.txt").read_text("utf-8").endswith("-r ../requirements.lock\n")


def test_what_both_distributions_need_they_need_alike() -> None:
    asked: dict[str, set[str]] = {}
    for one in map(Requirement, DEPENDENCIES):
        asked.setdefault(canonicalize_name(one.name), set()).add(str(one.specifier))
    assert not {name: specifiers for name, specifiers in asked.items() if len(specifiers) > 1}


def test_both_readers_of_stack_files_are_one_but_for_their_errors() -> None:
    """Operators have gpu_spot without pulumi_on_moto, which has nothing of ours: so there are two."""

    def read(path: str) -> dict[str, str]:
        tree = ast.parse((ROOT / path).read_text("utf-8").replace("UserError", "LocalCloudError"))
        parts = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
        return {part.name: ast.dump(part) for part in parts}

    ours = read("gpu_spot/declared/stackfile.py")
    theirs = read("packages/pulumi-on-moto/src/pulumi_on_moto/program/stackfile.py")
    assert ours.keys() - theirs.keys() == {"find_project"}
    assert theirs.keys() - ours.keys() == {"Stack"}
    assert [name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]] == []


def test_the_installed_command_is_this_tree() -> None:
    [script] = distribution("gpu-spot").entry_points.select(group="console_scripts", name="gpu-spot")
    assert script.value == PYPROJECT["project"]["scripts"]["gpu-spot"]
    # From another folder, so that the working directory cannot stand in for the installation.
    where = f"import {', '.join(PACKAGES)}; print(*(m.__file__ for m in ({', '.join(PACKAGES)})), sep='\\n')"
    found = run_process([sys.executable, "-c", where], cwd="/", check=True).stdout
    assert [Path(line).parent for line in found.splitlines()] == list(SOURCES.values())


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_pins_its_actions_and_starts_without_permissions(path: Path) -> None:
    text = path.read_text("utf-8")
    uses = re.findall(r"uses: (\S+.*)", text)
    assert not [one for one in uses if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one)]
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {}
    assert all("permissions" in job and "timeout-minutes" in job for job in workflow["jobs"].values())


def test_workflows_run_the_engine_of_the_sdk() -> None:
    engines = {
        step["with"]["pulumi-version"]
        for path in WORKFLOWS
        for job in yaml.safe_load(path.read_text("utf-8"))["jobs"].values()
        for step in job["steps"]
        if "pulumi/actions" in step.get("uses", "")
    }
    [engine] = engines
    assert f"pulumi=={engine}" in PYPROJECT["project"]["dependencies"]


def test_shell_scripts_pass_shellcheck(require_program: Callable[..., str]) -> None:
    shellcheck = require_program("shellcheck")
    scripts = [
        path
        for path in FILES
        if path.suffix == ".sh"
        or (path.suffix == "" and path.read_bytes()[:32].startswith((b"#!/usr/bin/env bash", b"#!/bin/")))
    ]
    assert scripts
    result = run_process([shellcheck, *scripts])
    assert result.returncode == 0, result.stdout


SHIPPED = {*PACKAGES, "packages", "examples"}


def test_no_error_ends_in_what_is_allowed() -> None:
    """`X must be A or B, not C` instead of `C, allowed: A, B`: contracts/sentences.py builds the choice."""
    suffixed = re.compile(r"[,;] (not )?allowed: (?!(str|int|float|bool)\b)")
    assert not {
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in FILES
        if path.suffix in {".py", ".sh"} and path.relative_to(ROOT).parts[0] in SHIPPED
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if suffixed.search(line)
    }
