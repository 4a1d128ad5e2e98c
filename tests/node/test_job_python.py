"""The environment of a job, with a double of uv; the real one: tests/real/test_torchrun.py."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contracts.agent.config import Python, Training
from tests.node.units import AsMe
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import Argv, Variables
from userdata.agent.work.training.job_python import MARK, UV, JobPython

ROOT = Path(__file__).parents[2]
UV_DOUBLE = """#!/bin/sh
echo "$@" >>{log}
for last; do :; done
case " $* " in
*" venv "*) mkdir -p "$last/bin" && ln -s {python} "$last/bin/python" ;;
*) if test -e {broken}; then echo "  x No solution" >&2; echo "  because nothing is there" >&2; exit 1; fi ;;
esac
"""


class Bench:
    def __init__(self, tmp: Path) -> None:
        self.tmp, self.host = tmp, AsMe()
        self.code, self.folder = tmp / "code", tmp / "environments"
        self.code.mkdir()
        (self.code / "requirements.txt").write_text("numpy==2.3.1\n")
        self.log, self.broken = tmp / "log", tmp / "broken"
        uv = tmp / "tools" / UV / "bin" / "uv"
        uv.parent.mkdir(parents=True)
        uv.write_text(UV_DOUBLE.format(log=self.log, broken=self.broken, python=sys.executable))
        uv.chmod(0o755)
        self.training = Training(
            "j",
            "t",
            "https://example.com/a",
            "0" * 40,
            ("x",),
            "somebody",
            "p",
            python=Python("3.11", "requirements.txt"),
        )

    def made(self, **changes: Any) -> JobPython:
        training = replace(self.training, **changes)
        places = (self.code, self.folder, self.tmp / "tools", self.tmp / "cache")
        return JobPython(self.host, training, *places)

    def prepare(self, **changes: Any) -> str:
        made = self.made(**changes)
        made.prepare()
        start = made.start(["python"], {"PATH": "/usr/bin"}, self.code)
        assert made.user == "somebody"
        assert start.environment["PATH"] == f"{start.environment['VIRTUAL_ENV']}/bin:/usr/bin"
        return start.environment["VIRTUAL_ENV"]

    @property
    def built(self) -> int:
        return self.log.read_text().count(" venv ") if self.log.exists() else 0


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_it_is_built_once_and_found_again(bench: Bench) -> None:
    home = bench.prepare()
    assert Path(home).parent == bench.folder
    assert bench.prepare() == home
    assert bench.built == 1


def test_another_version_or_requirement_is_another_environment(bench: Bench) -> None:
    homes = [bench.prepare(), bench.prepare(python=Python("3.12", "requirements.txt"))]
    (bench.code / "requirements.txt").write_text("-r deep/base.txt\nnumpy==2.3.1\n")
    (bench.code / "deep").mkdir()
    for text in ("torch==2.9.0\n-c limits.txt\n", "torch==2.9.1\n-c limits.txt\n"):
        (bench.code / "deep" / "base.txt").write_text(text)
        for limit in ("a<2\n", "a<3\n"):
            (bench.code / "deep" / "limits.txt").write_text(limit)
            homes.append(bench.prepare())
    assert len(set(homes)) == len(homes) == 6


@pytest.mark.parametrize(
    ("line", "is_local"),
    [
        ("-e .", True),
        ("libs/ours", True),
        ("ours-1.0-py3-none-any.whl", True),
        ("ours @ libs/ours", True),
        ("ours[all]@./ours", True),
        ("ours @ file:///srv/ours", True),
        ("-f wheels", True),
        ('directory = { path = ".", editable = false }', True),  # of a pylock.toml
        ("torch==2.9.0; sys_platform == 'linux'  # see docs/torch", False),
        ("# libs/ours", False),
        ("-r deep/base.txt", False),
        ("theirs @ https://example.com/a/theirs.zip", False),
        ("git+ssh://git@example.com/a/theirs@v1", False),
        ("-f https://example.com/wheels/", False),
        ("--constraint=deep/base.txt", False),
        ('wheels = [{ url = "https://example.com/a/theirs-1.0-py3-none-any.whl" }]', False),
    ],
)
def test_all_that_is_of_the_repository_follows_its_commits(bench: Bench, line: str, is_local: bool) -> None:
    (bench.code / "deep").mkdir()
    (bench.code / "deep" / "base.txt").write_text("a<2\n")
    (bench.code / "requirements.txt").write_text(f"numpy==2.3.1\n{line}\n")
    assert (bench.prepare() != bench.prepare(revision="1" * 40)) is is_local


def test_an_incomplete_environment_is_rebuilt(bench: Bench) -> None:
    bench.broken.touch()
    message = r"requirements\.txt: .*uv: exit 1: *because nothing is there"
    with pytest.raises(AgentError, match=message):
        bench.made().prepare()
    [left] = bench.folder.iterdir()
    assert not (left / MARK).exists()
    (left / "half").touch()
    bench.broken.unlink()
    assert bench.prepare() == str(left)
    assert not (left / "half").exists()
    assert bench.built == 2


def test_an_environment_without_its_interpreter_is_rebuilt(bench: Bench) -> None:
    python = Path(bench.prepare()) / "bin" / "python"
    python.unlink()
    python.symlink_to("/usr/bin/python3.99")
    bench.prepare()
    assert bench.built == 2


def test_the_mark_comes_after_the_bytes_are_on_the_disk(bench: Bench) -> None:
    bench.prepare()
    ran = [argv for argv, _, _ in bench.host.ran]
    install = next(n for n, argv in enumerate(ran) if "install" in argv and "pip" in argv)
    sync = next(n for n, argv in enumerate(ran) if argv[0] == "sync")
    mark = next(n for n, argv in enumerate(ran) if "touch" in argv)
    assert install < sync < mark


def test_two_environments_stay(bench: Bench) -> None:
    homes = []
    for version in ("3.11", "3.12", "3.13"):
        homes.append(bench.prepare(python=Python(version, "requirements.txt")))
        for n, home in enumerate(homes):
            if (mark := Path(home) / MARK).exists():
                os.utime(mark, (n, n))
    assert [Path(home).exists() for home in homes] == [False, True, True]


@pytest.mark.parametrize("name", ["missing.txt", "deep"])
def test_requirements_that_are_not_there_are_named(bench: Bench, name: str) -> None:
    (bench.code / "deep").mkdir()
    message = re.escape(f"{name} is not a text file in https://example.com/a at {'0' * 40}")
    with pytest.raises(AgentError, match=message):
        bench.made(python=Python("3.11", name)).prepare()
    assert not bench.built


def test_the_jobs_own_index_is_asked_by_whatever_name_it_goes(bench: Bench) -> None:
    bench.prepare(environment={"PIP_INDEX_URL": "https://index.example.com/simple"})
    environments = [env for argv, env, _ in bench.host.ran if "venv" in argv or "pip" in argv]
    assert {env["UV_DEFAULT_INDEX"] for env in environments} == {"https://index.example.com/simple"}


def test_uv_comes_by_its_hashes_from_the_jobs_index(bench: Bench) -> None:
    class Host(AsMe):
        def run(self, argv: Argv, timeout: float = 60, stdin: str = "", environment: Variables = None) -> str:
            self.ran.append((list(argv), dict(environment or {}), stdin))
            if argv[0] == "python3":
                raise AgentError("pip: exit 1: no index")
            return ""

    bench.host = Host()
    (bench.tmp / "tools" / UV / "bin" / "uv").unlink()
    with pytest.raises(AgentError, match="no index"):
        bench.made(environment={"UV_INDEX_URL": "https://i.example.com"}).prepare()
    [(argv, env, stdin)] = [one for one in bench.host.ran if one[0][0] == "python3"]
    assert env["PIP_INDEX_URL"] == "https://i.example.com"
    assert "--require-hashes" in argv
    assert "--only-binary=:all:" in argv
    assert re.fullmatch(rf"uv=={re.escape(UV)}( --hash=sha256:[0-9a-f]{{64}}){{2}}", stdin)


def test_uv_is_the_one_that_this_repository_locks_with() -> None:
    assert f"UV     := uv=={UV}\n" in (ROOT / "Makefile").read_text()
