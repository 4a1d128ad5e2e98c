"""Planted faults: each ends in an error for which docs/runbook.md says what to do, and that helps."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest

from packages.pulumi_standins.world import Fault
from tests.engine.workspace import ROOT, Run, Workspace

CREDENTIALS = "unable to validate AWS credentials.\nDetails: ExpiredToken: The security token is expired"
"""pulumi/pulumi-aws, provider/resources.go, ``validateCredentials``."""
DENIED = "api error UnauthorizedOperation: You are not authorized to perform this operation."


def remedies() -> dict[str, str]:
    """Return what the runbook says to do, by the text in the engine's output, in the page's order."""
    page = (ROOT / "docs" / "runbook.md").read_text("utf-8")
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", page.split("## When Pulumi stops")[1], re.M)
    return {text: remedy for texts, remedy in rows for text in re.findall(r"`([^`]+)`", texts)}


def remedy(run: Run) -> str:
    """Return the text of the first row that the output contains."""
    return next((text for text in remedies() if text in run.output), f"no row fits:\n{run.output}")


def failed(run: Run) -> Run:
    assert run.code != 0, run.output
    return run


def set_key(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(config: dict[str, Any]) -> None:
        capacity = config["gpu-spot:services"][0]["capacity"]
        capacity.pop(path, None)
        capacity |= {} if value is None else {path: value}

    return change


def test_a_refused_creation(workspace: Workspace) -> None:
    workspace.world.plant(Fault("create", match=":Vpc::", message=DENIED))
    run = failed(workspace.up(code=None))
    assert DENIED in run.output
    assert remedy(run) == "creating failed"
    workspace.world.plant()
    workspace.up()


def test_a_refused_update_and_a_refused_deletion(workspace: Workspace) -> None:
    workspace.up()
    workspace.edit(set_key("spotPercentage", 70))
    workspace.world.plant(Fault("update", match=":Group::", message=DENIED))
    assert remedy(failed(workspace.up(code=None))) == "updating failed"
    workspace.world.plant()
    workspace.world.put_instances({"us-west-2a": ["i-0"]})
    refused = failed(workspace.destroy(code=None))
    assert remedy(refused) == "deleting failed"
    assert re.search(r"DependencyViolation: subnet-\w+ is in use by i-0", refused.output)
    workspace.world.put_instances({})
    workspace.destroy()
    assert workspace.resources() == []


def test_a_provider_that_crashes(workspace: Workspace) -> None:
    workspace.world.plant(Fault("create", match=":Subnet::", after=1, effect="exit"))
    assert remedy(failed(workspace.up(code=None))) == "exited prematurely"
    workspace.world.plant()
    workspace.up()
    workspace.preview("--expect-no-changes")


def test_a_stack_continues_after_its_engine_is_killed(workspace: Workspace) -> None:
    workspace.world.plant(Fault("create", match=":Subnet::", effect="hang"))
    with workspace.started("up", "--yes", "--skip-preview") as process:
        workspace.wait_until_it_hangs()
        os.kill(process.pid, signal.SIGKILL)
    workspace.world.plant()
    assert remedy(failed(workspace.up(code=None))) == "currently locked by"
    workspace.run("cancel", "--yes")
    # The engine goes on, and warns until a person has looked at what was under way.
    assert remedy(workspace.up()) == "pending operations"
    assert remedy(workspace.up()) == "pending operations"
    workspace.refresh("--clear-pending-creates")
    assert "pending operations" not in workspace.up().output


@pytest.mark.parametrize(
    ("passphrase", "text"), [("wrong", "incorrect passphrase"), (None, "passphrase must be set")]
)
def test_a_wrong_passphrase_is_refused(passphrase: str | None, text: str, workspace: Workspace) -> None:
    workspace.environment.pop("PULUMI_CONFIG_PASSPHRASE")
    if passphrase:
        workspace.environment["PULUMI_CONFIG_PASSPHRASE"] = passphrase
    assert remedy(failed(workspace.up(code=None))) == text


def test_an_engine_that_is_too_old(workspace: Workspace) -> None:
    project = workspace.project / "Pulumi.yaml"
    lines = project.read_text("utf-8")
    project.write_text(re.sub(r"(requiredPulumiVersion:).*", r'\1 ">=99.0.0"', lines), "utf-8")
    assert remedy(failed(workspace.up(code=None))) == "does not satisfy the version range"


def test_a_plugin_that_is_not_installed(workspace: Workspace) -> None:
    plugins = workspace.folder / "home" / "plugins"
    plugins.rename(workspace.folder / "elsewhere")
    assert remedy(failed(workspace.up(code=None))) == "no resource plugin"


def test_expired_credentials(workspace: Workspace) -> None:
    workspace.world.plant(Fault("configure", message=CREDENTIALS))
    assert remedy(failed(workspace.up(code=None))) == "unable to validate AWS credentials"
    assert workspace.world.exists() == []


def test_a_package_that_is_not_installed(workspace: Workspace) -> None:
    absent = workspace.folder / "absent" / "pydantic"
    absent.mkdir(parents=True)
    (absent / "__init__.py").write_text("raise ModuleNotFoundError(name='pydantic')\n", "utf-8")
    path = os.pathsep.join((str(absent.parent), workspace.environment["PYTHONPATH"]))
    run = failed(workspace.up(code=None, PYTHONPATH=path))
    assert "package pydantic is not installed" in run.output
    assert remedy(run) == "run: make setup"


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("taget", 3, "is not a known key"),
        ("target", -1, "must be"),
        ("ami", "x", "must match"),
        ("kind", None, "is required"),
    ],
)
def test_a_wrong_key_is_refused(key: str, value: object, text: str, workspace: Workspace) -> None:
    workspace.edit(set_key(key, value))
    run = failed(workspace.up(code=None))
    assert f"gpu-spot:services[0].capacity.{key} {text}" in run.output
    assert "Traceback" not in run.output
    assert remedy(run) == text


def test_a_protected_resource(workspace: Workspace) -> None:
    workspace.edit(lambda config: config.update({"gpu-spot:protect": True}))
    workspace.up()
    assert remedy(failed(workspace.destroy(code=None))) == "because it is protected"


def test_every_row_of_the_runbook_has_a_planted_fault() -> None:
    tested = (ROOT / "tests" / "engine" / "test_faults.py").read_text("utf-8")
    assert [text for text in remedies() if f'"{text}"' not in tested] == []


def test_what_others_changed_is_found_by_a_refresh(workspace: Workspace) -> None:
    """What the controller moves is not a change; what a person changed or deleted is put right."""
    workspace.up()
    group, alarm = "Group::inference-primary", "MetricAlarm::controller-errors"
    workspace.world.plant(drift={group: {"desiredCapacity": 5}})
    workspace.refresh()
    workspace.preview("--expect-no-changes")
    workspace.world.plant(drift={group: {"desiredCapacity": 5, "maxSize": 99}, alarm: None})
    workspace.refresh()
    changed = {
        ":".join(step["urn"].split(":")[-3:]): step["op"]
        for step in workspace.preview().document["steps"]
        if step["op"] != "same"
    }
    assert changed == {group: "update", alarm: "create"}
    workspace.world.plant()
    workspace.up()
    workspace.preview("--expect-no-changes")
