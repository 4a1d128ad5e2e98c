"""Operators' commands run without moto and rehearsal, against a stubbed AWS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpu_spot.cli import _PANELS, _name
from gpu_spot.errors import ExitStatus
from tests.infra.declared import ROOT
from tests.soak import chosen
from tests.waiting import run_process

IMAGE = "ami-0fedcba9876543210"
MISSING = ("moto", "pulumi_on_moto", "pytest_pulumi_on_moto")
REFUSING = f"""
import sys

class Refusing:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {MISSING}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refusing)
"""
COMMAND = """
import sys
from gpu_spot import cli
try:
    code = cli.main(sys.argv[1:])
finally:
    if "pulumi" in sys.modules:
        from pulumi.runtime import settings
        assert settings.SETTINGS.monitor is None, "the SDK's mocks are set in the process that asks AWS"
sys.exit(code)
"""
TRIES = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        print(name)
"""
HELP = """
import contextlib, sys
from gpu_spot import cli
for name in sys.argv[1:]:
    with contextlib.suppress(SystemExit):
        cli.main([name, "--help"])
"""
TRIES_ALL = """
import json, sys
from gpu_spot import cli
print([int(cli.main(words.split())) for words in json.loads(sys.argv[1])], file=sys.stderr)
"""
ASKING = (
    *("status --json", "jobs list --json", "jobs show resnet", "jobs stop resnet", "preflight --json"),
    *("pin-images", "drill --group resnet --yes", "tensorboard --stop", "forecast --account"),
)
"""Commands that ask AWS."""
COMMANDS = [*(_name(module) for panel in _PANELS.values() for module in panel), "demo", "deploy"]
REHEARSING = {"demo": (), "deploy": ("--local",)}


@dataclass(frozen=True)
class Operator:
    """Runs commands in a project directory, with credentials of the stubbed account."""

    folder: Path
    environment: dict[str, str]

    def run(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, *words],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.run(*words, code=code).stdout)


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    folder, refusing = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("refusing")
    (refusing / "sitecustomize.py").write_text(REFUSING)
    (folder / "Pulumi.yaml").write_text((ROOT / "Pulumi.yaml").read_text())
    (folder / "infra").symlink_to(ROOT / "infra")
    (folder / "stacks").mkdir()
    content = yaml.safe_load((ROOT / "stacks" / "Pulumi.research.yaml").read_text())
    capacity = content["config"]["gpu-spot:training"][0]["capacity"]
    capacity |= {"ami": "/images/mine", "drill": 1}
    (folder / "stacks" / "Pulumi.research.yaml").write_text(yaml.safe_dump(content))
    with subprocess.Popen(
        [sys.executable, "-m", "tests.commands.served", str(folder), "research", IMAGE],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            endpoint = server.stdout.readline().strip()
            assert endpoint
            environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
            environment |= {
                "PYTHONPATH": os.pathsep.join(
                    map(str, (refusing, ROOT, ROOT / "packages" / "pulumi-on-moto" / "src"))
                ),
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_ACCESS_KEY_ID": "operator",
                "AWS_SECRET_ACCESS_KEY": "operator",
                "AWS_MAX_ATTEMPTS": "1",
                "COLUMNS": "200",
            }
            yield Operator(folder, environment)
        finally:
            server.stdin.close()


def test_none_of_it_can_be_imported(operator: Operator) -> None:
    words = [sys.executable, "-c", TRIES, *MISSING]
    done = run_process(words, env=operator.environment, check=True)
    assert done.stdout.split() == [*MISSING]


def test_every_command_is_listed(operator: Operator) -> None:
    listed = operator.run("--help").stdout
    assert not [name for name in COMMANDS if name not in listed]


def test_every_command_prints_its_help(operator: Operator) -> None:
    """All in one process, which imports what they share once."""
    words = [sys.executable, "-c", HELP, *COMMANDS]
    done = run_process(words, env=operator.environment, check=True)
    assert [name for name in COMMANDS if f"usage: gpu-spot {name} " not in done.stdout] == []


@pytest.mark.parametrize("fault", ["no credentials", "refused"])
def test_a_command_that_cannot_ask_aws_says_so_in_a_line(operator: Operator, fault: str) -> None:
    words = [
        f"{one} --head stacks/Pulumi.research.yaml" if "forecast" in one else f"{one} --stack research"
        for one in (ASKING if fault == "no credentials" else ASKING[:3])  # each takes a second
    ]
    nowhere = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "HOME": "/nowhere"}
    environment = operator.environment | nowhere | {"AWS_EC2_METADATA_DISABLED": "true"}
    if fault == "no credentials":
        environment |= {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    call = [sys.executable, "-c", TRIES_ALL, json.dumps(words)]
    done = run_process(call, cwd=operator.folder, env=environment)
    *lines, codes = done.stderr.splitlines()
    assert codes == str([int(ExitStatus.AWS)] * len(words)), done.stderr
    remedy = "aws sso login" if fault == "no credentials" else "check the region and the network"
    assert [remedy in line for line in lines] == [True] * len(words)


@pytest.mark.parametrize("name", chosen(REHEARSING, "demo"))
def test_a_rehearsal_names_the_missing_package(operator: Operator, name: str) -> None:
    done = operator.run(name, *REHEARSING[name], code=2)
    assert done.stderr.startswith("gpu-spot: pulumi_on_moto is missing")
    assert done.stderr.count("\n") == 1


def test_status_of_the_stubbed_account(operator: Operator) -> None:
    snapshot = operator.json("status", "--stack", "research", "--json", code=ExitStatus.ALARM)
    # Its first host has not come, which is not healthy.
    assert [(one["group"], one["condition"]) for one in snapshot["groups"]] == [("resnet", "short")]


@pytest.mark.soak
def test_jobs_are_listed_and_shown_and_their_log_is_read(operator: Operator) -> None:
    [job] = operator.json("jobs", "list", "--stack", "research", "--json")
    assert job["job"] == "resnet"
    assert operator.json("jobs", "show", "resnet", "--stack", "research", "--json")["job"] == "resnet"
    assert operator.json("jobs", "logs", "resnet", "--stack", "research", "--json")["lines"] == []


def test_preflight_checks_the_declared_resources_in_the_account(operator: Operator) -> None:
    document = operator.json("preflight", "--stack", "research", "--json", code=1)
    assert document["account"] == "123456789012"
    by_check: dict[str, list[dict[str, str]]] = {}
    for result in document["remarks"]:
        by_check.setdefault(result["check"], []).append(result)
    assert by_check["permissions"][0]["found"] == "access denied for SimulatePrincipalPolicy"
    # The stack is deployed, so its fixed names exist with its tag.
    assert "exist with its tag" in by_check["names"][0]["found"]
    assert any(one["subject"] == "alarms" for one in by_check["monthly cost"])


def test_a_drill_is_refused_where_the_group_has_nothing_to_take(operator: Operator) -> None:
    done = operator.run("drill", "--stack", "research", "--group", "resnet", "--yes", code=2)
    assert "misses 1 of 1" in done.stderr


def test_a_preview_is_reviewed(operator: Operator, tmp_path: Path) -> None:
    urn = "urn:pulumi:prod::gpu-spot::aws:cloudwatch/logGroup:LogGroup::functions"
    state = {"urn": urn, "type": "aws:cloudwatch/logGroup:LogGroup", "inputs": {"retentionInDays": 30}}
    preview = {"steps": [{"op": "create", "urn": urn, "newState": state}]}
    (tmp_path / "prod.json").write_text(json.dumps(preview))
    document = operator.json("review", "--preview", str(tmp_path / "prod.json"), "--json")
    assert [one["environment"] for one in document["environments"]] == ["prod"]


def test_a_stack_file_is_forecast(operator: Operator) -> None:
    document = operator.json(
        "forecast", "--head", "stacks/Pulumi.research.yaml", "--json", "--processes", "1"
    )
    assert [group["name"] for group in document["head"]["groups"]] == ["resnet"]


def test_images_are_pinned(operator: Operator) -> None:
    before = (operator.folder / "stacks" / "Pulumi.research.yaml").read_text()
    pinned = operator.json("pin-images", "--stack", "research", "--json")
    assert [one["image"] for one in pinned["images"]] == [IMAGE]
    (operator.folder / "stacks" / "Pulumi.research.yaml").write_text(before)


def test_tensorboard_is_stopped(operator: Operator) -> None:
    assert (
        operator.run("tensorboard", "--stack", "research", "--stop").stdout
        == "no TensorBoard instance is running\n"
    )


def test_schema_and_completion_are_printed(operator: Operator) -> None:
    assert "properties" in operator.json("schema")
    assert "gpu-spot" in operator.run("completion", "bash").stdout
