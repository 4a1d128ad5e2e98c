"""Every sample stack under the real engine, from its first preview to its destruction."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
import yaml

from packages.pulumi_standins.world import Fault
from tests.engine.conftest import STACKS_PROPERTY
from tests.engine.workspace import ROOT, STACKS, Workspace

AUTONAMING = "pulumi:autonaming"
MESSAGE = "api error RequestLimitExceeded: Request limit exceeded."
# What stays on purpose: the agent's archive goes with its bucket, an old version of a secret with its secret.
RETAINED = ("aws:s3/bucketObjectv2:BucketObjectv2", "aws:secretsmanager/secretVersion:SecretVersion")
IN_PLACE = {
    "aws:autoscaling/group:Group",
    "aws:cloudwatch/dashboard:Dashboard",
    "aws:cloudwatch/metricAlarm:MetricAlarm",
    "aws:ec2/spotFleetRequest:SpotFleetRequest",
    "aws:iam/rolePolicy:RolePolicy",  # the controller buys in a zone of its choice only where all is Spot
    "aws:ssm/parameter:Parameter",
}


def change_mix(config: dict[str, Any]) -> None:
    """Change the share of Spot of the first entry on instances."""
    entries = [
        entry
        for key in ("services", "training", "sharedHosts")
        for entry in config.get(f"gpu-spot:{key}", ())
        if entry.get("runsOn") != "kubernetes"
    ]
    capacity = entries[0]["capacity"]
    if capacity["kind"] == "spot-fleet":
        capacity["onDemandBase"] = 1
    else:
        capacity["spotPercentage"] = 70


def protect(config: dict[str, Any]) -> None:
    config["gpu-spot:protect"] = True


def unprotect(config: dict[str, Any]) -> None:
    config["gpu-spot:protect"] = False


@pytest.mark.parametrize("stack", STACKS)
def test_a_sample_stack_lives_under_the_engine(
    stack: str, workspace: Workspace, record_property: Any
) -> None:
    first = workspace.preview()
    assert first.operations().keys() == {"create"}
    rest, failed = _up_that_fails_and_goes_on(workspace)
    again = workspace.preview("--expect-no-changes")
    assert again.operations().keys() <= {"same", "read"}
    workspace.refresh("--expect-no-changes")
    resources = workspace.resources()
    generated = generated_names(item["inputs"] for item in resources if item.get("custom"))
    assert generated
    assert [name for name in generated if not name.startswith(f"gpu-spot-{stack}-")] == []
    packages = Counter(item["type"].partition(":")[0] for item in resources if item.get("custom"))
    record_property(
        STACKS_PROPERTY,
        (
            *(stack, len(resources), packages["aws"], packages["kubernetes"]),
            *(round(run.seconds) for run in (first, failed, rest, again)),
        ),
    )

    workspace.edit(change_mix)
    changed = [step for step in workspace.preview().document["steps"] if step["op"] != "same"]
    assert changed
    assert {step["op"] for step in changed} == {"update"}
    assert {step["urn"].split("::")[2].rpartition("$")[2] for step in changed} <= IN_PLACE
    workspace.edit(protect)
    workspace.up()

    holds_data = any(item.get("protect") for item in workspace.resources())
    assert holds_data
    refused = workspace.destroy(code=None)
    assert refused.code != 0
    assert "protect" in refused.output

    workspace.edit(unprotect)
    workspace.up()
    workspace.destroy()
    assert workspace.resources() == []
    assert {_kind(item["urn"]) for item in workspace.world.exists()} <= {*RETAINED}


def generated_names(inputs: Iterable[dict[str, Any]]) -> list[str]:
    """Return the physical names that end as the engine's do, in seven digits."""
    values = (str(one.get(key, "")) for one in inputs for key in ("name", "bucket", "dashboardName"))
    return [name for name in values if re.search(r"-[0-9a-f]{7}(\.fifo)?$", name)]


def test_a_renamed_stack_changes_nothing_and_goes_on_with_its_old_name(workspace: Workspace) -> None:
    workspace.up()
    workspace.run("stack", "rename", "team")
    workspace.stack = "team"
    pattern = yaml.safe_load((ROOT / "Pulumi.yaml").read_text("utf-8"))["config"][AUTONAMING]["value"]
    pattern = json.loads(json.dumps(pattern).replace("${stack}", "dev"))
    workspace.edit(lambda config: config.update({"gpu-spot:stackName": "dev", AUTONAMING: pattern}))
    workspace.preview("--expect-no-changes")

    workspace.edit(lambda config: config["gpu-spot:services"].append(another(config)))
    steps = workspace.preview().document["steps"]
    assert not {step["op"] for step in steps} & {"replace", "create-replacement", "delete"}
    created = [step["newState"] for step in steps if step["op"] == "create"]
    names = generated_names(state["inputs"] for state in created if "inputs" in state)
    assert names
    assert [name for name in names if not name.startswith("gpu-spot-dev-another-")] == []


def another(config: dict[str, Any]) -> dict[str, Any]:
    return {**config["gpu-spot:services"][0], "name": "another"}


def _up_that_fails_and_goes_on(workspace: Workspace) -> tuple[Any, Any]:
    """Run ``up`` with a fault in the middle, and again without it: nothing is created twice."""
    workspace.world.plant(Fault("create", after=40, message=MESSAGE))
    failed = workspace.up(code=None)
    assert failed.code != 0
    assert MESSAGE in failed.output
    created = Counter(item["urn"] for item in workspace.world.journal())
    assert len(created) >= 40
    workspace.world.plant()
    rest = workspace.up()
    created = Counter(item["urn"] for item in workspace.world.journal() if item["call"] == "create")
    assert set(created.values()) == {1}
    return rest, failed


def _kind(urn: str) -> str:
    return urn.split("::")[2].rpartition("$")[2]
