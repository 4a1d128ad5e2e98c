"""The component package under the engine: its schema, and programs in Python, YAML and TypeScript."""

from __future__ import annotations

import json
import re
import shutil
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.engine.workspace import ROOT, Workspace
from tests.waiting import run_process

PAGE: Final = (ROOT / "docs" / "components.md").read_text("utf-8")
PYTHON: Final = """\
import pulumi
import pulumi_gpu_spot as gpu_spot

pages = gpu_spot.Service(
    "ocr",
    network={"cidr": "10.41.0.0/16", "zones": ["us-west-2a", "us-west-2b"]},
    capacity={"kind": "mixed-asg", "target": 2, "instanceTypes": ["g6.xlarge", "g5.xlarge"]},
    command=["/opt/ocr/work"],
    queue={"kind": "sqs"},
)
pulumi.export("follow", pages.follow_decisions)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the package in a copy of the checkout, whose environment the engine may change."""
    checkout = tmp_path_factory.mktemp("checkout")
    listed = run_process(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, checkout / name)
    venv.create(checkout / ".venv", with_pip=True)
    [packages] = (checkout / ".venv").glob("lib/python*/site-packages")
    (packages / "of_the_tests.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    return checkout / "infra" / "package"


def project(folder: Path, runtime: object, program: str, file: str) -> Path:
    """Write a project with a stack ``dev`` in us-west-2."""
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "pages", "runtime": runtime}), "utf-8")
    (folder / "Pulumi.dev.yaml").write_text(yaml.safe_dump({"config": {"aws:region": "us-west-2"}}), "utf-8")
    (folder / file).write_text(program, "utf-8")
    return folder


def block(language: str, after: str) -> str:
    """Return the first code block of a language below a heading of docs/components.md."""
    section = PAGE.split(f"## {after}\n")[1].split("\n## ")[0]
    found = re.search(rf"```{language}\n(.*?)```", section, re.S)
    assert found
    return found[1]


def previews_and_goes_up(workspace: Workspace) -> None:
    assert workspace.preview().operations().keys() == {"create"}
    workspace.up()
    assert workspace.preview("--expect-no-changes").operations().keys() <= {"same", "read"}
    types = {item["type"] for item in workspace.resources()}
    assert {"gpu-spot:index:Service", "aws:autoscaling/group:Group"} <= types


def test_its_schema_is_readable_by_the_engine(package: Path, workspace: Workspace) -> None:
    schema = json.loads(_stdout(workspace, "package", "get-schema", str(package)))
    assert {token.rpartition(":")[2] for token in schema["resources"]} == {
        *("CapacityGroup", "GpuSpot", "Service", "TrainingJob")
    }


def test_the_engine_installs_no_plugin_for_a_distribution_of_ours(workspace: Workspace) -> None:
    """``pulumi install`` does the same; the plugins of the providers are there."""
    workspace.run("plugin", "install")


def test_a_program_in_python_uses_the_package(package: Path, tmp_path: Path) -> None:
    runtime = {"name": "python", "options": {"toolchain": "pip", "virtualenv": "venv"}}
    source = project(tmp_path / "source", runtime, PYTHON, "__main__.py")
    (source / "requirements.txt").write_text("pulumi>=3\n", "utf-8")
    workspace = Workspace(tmp_path / "work", "dev", project=source)
    workspace.run("package", "add", str(package))
    previews_and_goes_up(workspace)


def test_the_program_in_yaml_uses_the_package(
    package: Path, tmp_path: Path, require_program: Callable[..., str]
) -> None:
    require_program("pulumi-language-yaml", package="the Pulumi CLI")
    program = yaml.safe_load(block("yaml", "Pulumi YAML"))
    program |= {"name": "pages", "packages": {"gpu-spot": str(package)}}
    source = project(tmp_path / "source", "yaml", yaml.safe_dump(program), "Pulumi.yaml")
    previews_and_goes_up(Workspace(tmp_path / "work", "dev", project=source))


def test_the_program_in_typescript_uses_the_package(
    package: Path, tmp_path: Path, require_program: Callable[..., str]
) -> None:
    for program in ("pulumi-language-nodejs", "node", "npm"):
        require_program(program, package="the Pulumi CLI, nodejs and npm")
    source = project(tmp_path / "source", "nodejs", block("typescript", "TypeScript"), "index.ts")
    dependencies = {"@pulumi/pulumi": "^3.0.0"}
    (source / "package.json").write_text(
        json.dumps({"name": "pages", "main": "index.ts", "dependencies": dependencies}), "utf-8"
    )
    workspace = Workspace(tmp_path / "work", "dev", project=source)
    workspace.run("install")
    workspace.run("package", "add", str(package))
    previews_and_goes_up(workspace)


def _stdout(workspace: Workspace, *arguments: str) -> str:
    return run_process(
        ["pulumi", *arguments], cwd=workspace.project, env=workspace.environment, check=True
    ).stdout
