"""The node agent's archive: its bytes follow from its sources, and it needs nothing beside Python."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

import pulumi
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import userdata.agent
from infra.archives import agent as agent_archive
from infra.archives import pins, sdk, zip_file
from pulumi_on_moto.running.server import serve
from tests.infra.declared import ROOT, shipped
from tests.node import configs, unit_files
from tests.node.test_registry import empty_registry
from tests.waiting import TIMEOUT_SECONDS, run_process, wait_until

AGENT = Path(userdata.agent.__file__).parent


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("agent")
    with zipfile.ZipFile(agent_archive.build().path) as archive:
        archive.extractall(folder)
    return folder


def python(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run as the units do: no packages of the system (-S), nothing in the environment but the archive."""
    environment = {"PYTHONPATH": str(home), "PATH": os.defpath}
    environment |= dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "testing")
    command = [sys.executable, "-S", *arguments]
    return run_process(command, env=environment, cwd="/")


def copied(folder: Path) -> None:
    """Copy the sources with their __pycache__ and with other times."""
    for package in ("contracts", "userdata"):
        shutil.copytree(AGENT.parents[1] / package, folder / package)


def test_the_archive_does_not_depend_on_the_directory_of_the_sources(tmp_path: Path) -> None:
    copied(tmp_path)
    archive = zip_file.pack(agent_archive.sources(tmp_path))
    built = agent_archive.build(tmp_path / "out")
    assert hashlib.sha256(archive).hexdigest() == built.sha256
    assert hashlib.sha256(built.path.read_bytes()).hexdigest() == built.sha256
    assert [path.name for path in built.path.parent.iterdir()] == [f"{built.sha256}.zip"]


@pytest.mark.parametrize("source", ["contracts/names.py", "userdata/agent/cli.py"])
def test_a_changed_source_is_another_archive(tmp_path: Path, source: str) -> None:
    copied(tmp_path)
    (tmp_path / source).write_text("# changed\n", "utf-8")
    changed = zip_file.pack(agent_archive.sources(tmp_path))
    assert hashlib.sha256(changed).hexdigest() != agent_archive.build(tmp_path / "out").sha256


def test_it_holds_the_agent_whole_and_no_more_than_is_needed() -> None:
    names = list(agent_archive.sources())
    assert names == sorted(names)
    in_tree = {
        path.relative_to(AGENT.parents[1]).as_posix()
        for path in AGENT.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert in_tree <= set(names)
    assert not [name for name in names if name.endswith((".pyc", ".so"))]
    assert agent_archive.build().path.stat().st_size < 8_000_000


def test_every_dependency_of_a_dependency_is_in_it() -> None:
    for name in agent_archive.PACKAGES:
        for requirement in map(Requirement, distribution(name).requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                assert canonicalize_name(requirement.name) in agent_archive.PACKAGES, requirement


def test_its_command_line_starts_in_a_clean_process(unpacked: Path) -> None:
    done = python(unpacked, "-m", "userdata.agent", "--help")
    assert done.returncode == 0, done.stderr
    assert "volume" in done.stdout


def test_every_module_of_the_agent_finds_what_it_imports(unpacked: Path) -> None:
    code = (
        "import importlib, pkgutil, userdata.agent as agent\n"
        "for module in pkgutil.walk_packages(agent.__path__, 'userdata.agent.'):\n"
        "    if not module.name.endswith('__main__'):\n"
        "        importlib.import_module(module.name)\n"
    )
    done = python(unpacked, "-c", code)
    assert done.returncode == 0, done.stderr


def test_every_client_that_the_agent_makes_finds_its_model(unpacked: Path) -> None:
    code = (
        "import inspect, pynvml\n"
        "from userdata.agent.aws import clients\n"
        "makers = [m for n, m in inspect.getmembers(clients, inspect.isfunction)"
        " if list(inspect.signature(m).parameters) == ['region']]\n"
        "made = [m('us-west-2') for m in makers]\n"
        "made[[m.__name__ for m in makers].index('s3')].get_paginator('list_objects_v2')\n"
        "print(*sorted(c.meta.service_model.service_name for c in made))\n"
    )
    done = python(unpacked, "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == sorted(agent_archive.SERVICES)


@pytest.mark.parametrize("mode", ["known", "unknown"])
def test_what_lies_in_the_bucket_is_what_the_boot_data_verifies(mode: str) -> None:
    stored = shipped("dev", mode).the("BucketObjectv2", "agent")
    archive = Path(stored["source"])
    assert stored["key"] == f"agent/{hashlib.sha256(archive.read_bytes()).hexdigest()}.zip"
    if mode == "known":
        assert f'AGENT_KEY=\\"{stored["key"]}\\"' in shipped("dev").cloud_config("inference-primary")


@pytest.mark.parametrize("stack", ["dev", "research"])
def test_an_instance_of_an_older_template_may_fetch_its_older_archive(stack: str) -> None:
    known = shipped(stack)
    for name, policy in known.of("RolePolicy").items():
        if name.endswith("-instance"):
            statements = {one["Sid"]: one for one in json.loads(policy["policy"])["Statement"]}
            assert statements["FetchAgent"]["Resource"] == [f"arn:gpu-spot-{stack}-agent/agent/*"]


def started(program: Path, stack: str) -> subprocess.CompletedProcess[str]:
    """Run a copy of the program's entry point beside ``stack`` as its ``program/stack.py``."""
    program.mkdir()
    shutil.copy(ROOT / "infra" / "__main__.py", program)
    (program / "__init__.py").touch()
    (program / "program").mkdir()
    (program / "program" / "stack.py").write_text(stack)
    return run_process([sys.executable, program], cwd=ROOT)


def test_a_copied_checkout_runs_its_own_code(tmp_path: Path) -> None:
    done = started(tmp_path / "infra", "def declare():\n    print(__file__)\n")
    assert done.stdout.strip() == str(tmp_path / "infra" / "program" / "stack.py"), done.stderr


def test_a_package_that_is_missing_is_named_with_what_installs_it(tmp_path: Path) -> None:
    done = started(tmp_path / "infra", "import absent.module\n")
    last = done.stderr.strip().splitlines()[-1]
    assert last.endswith("RunError: package absent is not installed, run: make setup")


@pytest.mark.parametrize(
    ("pin", "message"),
    [
        (
            "boto3==1.0",
            r"package boto3 has version [\d.]+, but requirements\.lock pins 1\.0; run: make setup",
        ),
        ("absent==2.1", r"package absent is not installed, but .* pins 2\.1; run: make setup"),
    ],
)
def test_an_environment_that_differs_from_the_lock_is_an_error(
    pin: str, message: str, tmp_path: Path
) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"{pin} \\\n    --hash=sha256:0\n")
    with pytest.raises(pulumi.RunError, match=f"^{message}$"):
        pins.installed(pin.partition("==")[0], lock)


def test_the_archive_takes_no_package_that_the_lock_does_not_pin(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[str] = []

    def installed(name: str) -> Distribution:
        requested.append(name)
        return pins.installed(name)

    monkeypatch.setattr(sdk, "installed", installed)
    agent_archive.sources()
    assert requested == list(agent_archive.PACKAGES)


@pytest.fixture
def served_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Any]]:
    """Yield the address of a cloud with a registry in it, and a client."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with empty_registry() as client, serve() as address:
        yield address, client


WORKER = 'pwd >"$0.new"; env >>"$0.new"; mv "$0.new" "$0"; exec sleep infinity'


@pytest.mark.parametrize("user", ["", "nobody"])
def test_a_worker_sees_nothing_of_the_agent_that_starts_it(
    unpacked: Path, tmp_path: Path, served_registry: tuple[str, Any], user: str
) -> None:
    """With the unit's PYTHONPATH a worker imported the agent's boto3, which knows nine services."""
    if user and os.getuid():
        pytest.skip("only root starts a worker as another user")
    server, _ = served_registry
    public = Path(tempfile.mkdtemp())  # pytest's own folders are closed to other users
    public.chmod(0o777)
    report = public / "report"
    body = configs.service(group="ocr", hooks=None, onPremises=True, nvidia=False)
    command = ["/bin/sh", "-c", WORKER, str(report)]
    body["service"] = {"gpus": 1, "user": user, "command": command, "environment": {"OWN": "1"}}
    (tmp_path / "agent.json").write_text(json.dumps(body))
    unit = unit_files.environment("gpu-spot-work") | {"PYTHONPATH": str(unpacked), "AWS_ENDPOINT_URL": server}
    unit |= dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "testing")
    argv = [sys.executable, "-S", "-m", "userdata.agent", "--config", str(tmp_path / "agent.json")]
    agent = subprocess.Popen([*argv, "--run-dir", str(tmp_path / "run"), "work"], env=unit, cwd="/")
    try:
        wait_until(report.exists)
        directory, *lines = report.read_text("utf-8").splitlines()
        agent.terminate()
        assert agent.wait(TIMEOUT_SECONDS) == 0
    finally:
        agent.kill()
        agent.wait()
        shutil.rmtree(public)
    account = pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())
    home = account.pw_dir if Path(account.pw_dir).is_dir() else "/"
    given = dict(line.split("=", 1) for line in lines)
    expected = {"PATH": unit["PATH"], "LANG": "C.UTF-8", "OWN": "1", "CUDA_VISIBLE_DEVICES": "0"}
    expected |= {"USER": account.pw_name, "LOGNAME": account.pw_name, "HOME": home}
    assert given | expected == given
    ours = {*expected, "CUDA_DEVICE_ORDER", "PWD", "SHLVL", "_", "OLDPWD"}  # the shell's are last
    assert {name for name in given if not name.startswith("GPU_SPOT_")} <= ours
    assert directory == home


def test_a_command_of_the_agent_does_not_import_the_agents_libraries(unpacked: Path, tmp_path: Path) -> None:
    """``mount.efs`` and uv's builds are Python programs, with a botocore of their own."""
    (tmp_path / "bin").mkdir()
    docker = tmp_path / "bin" / "docker"
    docker.write_text(f"#!/bin/sh\nenv >{tmp_path}/environment\nexit 1\n")
    docker.chmod(0o755)
    body = configs.service(hooks=None, onPremises=True, nvidia=False)
    body["service"] = {"gpus": 1, "image": f"example.com/worker@sha256:{'0' * 64}"}
    (tmp_path / "agent.json").write_text(json.dumps(body))
    unit = unit_files.environment("gpu-spot-prepare")
    unit |= {"PYTHONPATH": str(unpacked), "PATH": f"{tmp_path}/bin:{os.defpath}"}
    argv = [sys.executable, "-S", "-m", "userdata.agent", "--config", str(tmp_path / "agent.json"), "prepare"]
    done = run_process(argv, env=unit, cwd="/")
    assert "docker: exit 1" in done.stderr
    seen = dict(line.split("=", 1) for line in (tmp_path / "environment").read_text("utf-8").splitlines())
    assert not [name for name in seen if name.startswith("PYTHON")]
    assert seen["DOCKER_CONFIG"] == "/run/gpu-spot-docker"
