"""Changes after an ``up``: docs/changes.md is what the engine says, and what would do harm is refused."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.engine.outcomes import (
    IN_PLACE,
    NOTHING,
    REFUSED,
    allowed,
    applied,
    effect,
    how,
    is_default,
    listed,
)
from tests.engine.workspace import Run, Workspace
from tests.review.changes import Change

PROTECTED = "protected"
KEY = "arn:aws:kms:us-west-2:123456789012:key/00000000-0000-0000-0000-000000000000"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Divide the sample by stack: each is deployed once."""
    if "sample" in metafunc.fixturenames:
        of_stack: dict[str, list[Change]] = defaultdict(list)
        for change in allowed()[:: metafunc.config.getoption("--changes")]:
            of_stack[change.stack].append(change)
        metafunc.parametrize(("stack", "sample"), list(of_stack.items()), ids=[*of_stack])


def test_the_page_lists_what_the_engine_says(
    stack: str, sample: list[Change], workspace: Workspace, record_property: Any
) -> None:
    workspace.up()
    page = listed()
    same = Counter((change.key, how(change)) for change in allowed() if change.stack == stack)
    wrong = []
    for change in (one for one in sample if not is_default(one)):
        found = after(workspace, change)
        expected = page.get((change.key, how(change), stack), set())
        is_alone = same[change.key, how(change)] == 1
        if found == PROTECTED:
            found = min(text for text in expected if "deletes" in text or "replaces" in text)
        if found not in (expected or {IN_PLACE}) and not (found == IN_PLACE and not is_alone):
            wrong.append((change.title, found, expected))
    record_property("changes", len(sample))
    assert wrong == []


def after(workspace: Workspace, change: Change) -> str:
    """Return the effect of a change by the engine's preview."""
    file = workspace.project / "stacks" / f"Pulumi.{change.stack}.yaml"
    file.write_text(yaml.safe_dump({"config": applied(change)}), "utf-8")
    return said(workspace.preview(code=None))


def said(run: Run) -> str:
    if run.code == 0:
        return effect(run.document["steps"])
    if "because it is protected" in run.output:
        return PROTECTED
    assert re.search(r"gpu-spot:\S+ (must|is|needs) ", run.output), run.output
    return REFUSED


def kubernetes(config: dict[str, Any]) -> dict[str, Any]:
    section: dict[str, Any] = config["gpu-spot:kubernetes"]
    return section


def zones(*letters: str) -> Callable[[dict[str, Any]], None]:
    return lambda config: config["gpu-spot:network"].update(zones=[f"us-west-2{one}" for one in letters])


REFUSALS: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
    "a customer's key": ("kmsKeyArn: ", lambda config: config.update({"gpu-spot:kmsKeyArn": KEY})),
    "a renamed cluster": (
        "kubernetes.cluster: ",
        lambda config: kubernetes(config).update(cluster="another"),
    ),
    "another path": (
        "storage.fileSystem.accessPoints: ",
        lambda config: config["gpu-spot:storage"]["fileSystem"]["accessPoints"][0].update(path="/elsewhere"),
    ),
    "another zone": ("network.zones: without subnet-", zones("a", "c")),
    "another block": (
        "network.cidr: ",
        lambda config: config["gpu-spot:network"].update(cidr="10.99.0.0/16"),
    ),
}


@pytest.mark.parametrize("stack", ["eks"])
def test_what_a_cluster_cannot_follow_is_refused_and_a_revision_has_one_job(
    stack: str, workspace: Workspace
) -> None:
    workspace.up()
    file = workspace.project / "stacks" / f"Pulumi.{stack}.yaml"
    original = file.read_text("utf-8")
    deployed_ids = {item["id"] for item in workspace.world.exists()}
    for text, edit in REFUSALS.values():
        workspace.edit(edit)
        for run in (workspace.preview(code=None), workspace.up(code=None)):
            assert run.code != 0
            assert f"gpu-spot:{text}" in run.output
            assert "Traceback" not in run.output
        assert deployed_ids <= {item["id"] for item in workspace.world.exists()}
        file.write_text(original, "utf-8")
    workspace.up()
    workspace.preview("--expect-no-changes")

    workspace.edit(zones("a", "b", "c"))
    wider = workspace.preview()
    changed = {
        str(step["urn"].split("::")[2].rpartition(":")[2])
        for step in wider.document["steps"]
        if step["op"] not in ("same", "read", "create")
    }
    assert not {"Cluster", "NodeGroup", "PersistentVolume", "Deployment", "Job", "ScaledObject"} & changed
    assert "EC2NodeClass" in changed

    file.write_text(original, "utf-8")
    workspace.edit(lambda config: config["gpu-spot:training"][0].update(revision="f" * 40))
    before = len(workspace.world.journal())
    workspace.up()
    jobs = [item for item in workspace.world.journal()[before:] if ":Job::" in item["urn"]]
    assert [item["call"] for item in jobs] == ["delete", "create"]
    assert len({item["urn"] for item in jobs}) == 1
    workspace.preview("--expect-no-changes")


def test_a_removed_zone_keeps_its_subnets_until_it_is_empty(workspace: Workspace) -> None:
    """One gateway keeps its address, and what AWS refuses to delete is not deleted."""
    workspace.edit(lambda config: config["gpu-spot:network"].update(egress="nat-gateway"))
    workspace.up()
    address = addresses(workspace)
    workspace.world.put_instances({"us-west-2a": ["i-0"]})
    workspace.edit(zones("b", "c"))
    workspace.up()
    assert "us-west-2a" in subnet_zones(workspace)
    workspace.preview("--expect-no-changes")
    workspace.world.put_instances({})
    workspace.up()
    assert subnet_zones(workspace) == {"us-west-2b", "us-west-2c"}
    assert addresses(workspace) == address != []
    workspace.preview("--expect-no-changes")


def addresses(workspace: Workspace) -> list[str]:
    return [item["id"] for item in workspace.world.exists() if ":Eip::" in item["urn"]]


def subnet_zones(workspace: Workspace) -> set[str]:
    subnets = (item["inputs"] for item in workspace.world.exists() if ":Subnet::" in item["urn"])
    return {subnet["availabilityZone"] for subnet in subnets}


@pytest.mark.parametrize("stack", ["eks"])
def test_another_number_of_restarts_replaces_a_job(stack: str, workspace: Workspace) -> None:
    """A cluster refuses an update of ``backoffLimitPerIndex``."""
    workspace.up()
    workspace.edit(lambda config: config["gpu-spot:training"][0].update(maxRestarts=7))
    run = workspace.preview()
    assert effect(run.document["steps"]) == "replaces `Job`"
    assert NOTHING not in effect(run.document["steps"])
