"""Changes after an ``up``: docs/changes.md is what the engine says."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from contracts.group import health_settings, release_settings
from contracts.group.health_settings import HealthSettings
from contracts.group.release import WorkerRelease
from contracts.group.release_settings import DesiredRelease
from tests.engine.outcomes import (
    AT_ONCE,
    BOOTS,
    DRIFTS,
    ENDS,
    IN_PLACE,
    REFUSED,
    ROLLS,
    allowed,
    applied,
    effect,
    how,
    is_default,
    listed,
    listed_reaches,
    reach,
)
from tests.engine.workspace import Run, Workspace
from tests.review.changes import Change

PROTECTED = "protected"


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


def release(image: str = "", command: str = "serve") -> dict[str, Any]:
    desired = DesiredRelease(WorkerRelease(image=image, command=(command,)))
    return {"insecureValue": release_settings.dumps(desired)}


def pool(*types: str, budgets: Sequence[Any] = (), limit: int = 8) -> dict[str, Any]:
    requirements = [{"key": "node.kubernetes.io/instance-type", "values": [*types]}]
    spec = {"template": {"spec": {"requirements": requirements}}, "limits": {"nvidia.com/gpu": limit}}
    return {"metadata": {"name": "a"}, "spec": {**spec, "disruption": {"budgets": [*budgets]}}}


def node_class(image: str, *subnets: str) -> dict[str, Any]:
    terms = [{"id": subnet} for subnet in subnets]
    return {"metadata": {"name": "a"}, "spec": {"ami": image, "subnetSelectorTerms": terms}}


NEVER = {"nodes": "0", "reasons": ["Drifted"]}
FEW, MORE, OTHER = pool("g6.xlarge"), pool("g6.xlarge", "g5.xlarge"), pool("g5.xlarge")
ONE, TWO = {"spec": {"template": 1}}, {"spec": {"template": 2}}
NO_RESTART = {"insecureValue": health_settings.dumps(HealthSettings(max_unavailable_percent=0))}
RELEASED = ("update", "ssm:Parameter", "a-release", release(), release(command="other"))


@pytest.mark.parametrize(
    ("touched", "when"),
    [
        ([], ""),
        ([("same", "ec2:LaunchTemplate", "a"), ("read", "ssm:Parameter", "a-release")], ""),
        ([("update", "ssm:Parameter", "a-config")], AT_ONCE),
        ([("create", "autoscaling:Group", "a-fallback")], AT_ONCE),
        ([("update", "autoscaling:Group", "a-primary")], AT_ONCE),
        ([("update", "ssm:Parameter", "a-config"), ("update", "ec2:LaunchTemplate", "a")], BOOTS),
        ([("update", "ec2:LaunchTemplate", "a"), RELEASED], ROLLS),
        ([("update", "ssm:Parameter", "a-release", release(), release())], AT_ONCE),
        ([("update", "ssm:Parameter", "a-release", release(), release("image"))], BOOTS),
        ([("same", "ssm:Parameter", "a-health", NO_RESTART, NO_RESTART), RELEASED], BOOTS),
        ([("update", "kubernetes:Deployment", "a", ONE, TWO)], ROLLS),
        ([("update", "kubernetes:Deployment", "a", ONE, {"spec": {"template": 1, "replicas": 2}})], AT_ONCE),
        ([("update", "kubernetes:NodePool", "a", FEW, MORE)], BOOTS),
        ([("update", "kubernetes:NodePool", "a", FEW, OTHER)], DRIFTS),
        ([("update", "kubernetes:NodePool", "a", FEW, pool("g5.xlarge", budgets=[NEVER]))], BOOTS),
        ([("update", "kubernetes:NodePool", "a", FEW, pool("g6.xlarge", limit=9))], AT_ONCE),
        (
            [("update", "kubernetes:EC2NodeClass", "a", node_class("1", "s"), node_class("1", "s", "t"))],
            BOOTS,
        ),
        ([("update", "kubernetes:EC2NodeClass", "a", node_class("1", "s"), node_class("2", "s"))], DRIFTS),
        ([("update", "kubernetes:EC2NodeClass", "a", node_class("1", "s"), {"spec": "unknown"})], BOOTS),
        ([RELEASED, ("delete", "autoscaling:Group", "a-primary")], ENDS),
        ([("create-replacement", "ec2:SpotFleetRequest", "a")], ENDS),
    ],
)
def test_what_a_change_touches_says_when_it_reaches_workers(
    touched: list[tuple[Any, ...]], when: str
) -> None:
    steps = [
        {
            "op": op,
            "urn": f"urn:pulumi:dev::gpu-spot::x$aws:{kind}::{name}",
            "diffReasons": ["tags"],
            **{
                side: {"inputs": inputs}
                for side, inputs in zip(("oldState", "newState"), states, strict=False)
            },
        }
        for op, kind, name, *states in touched
    ]
    assert reach(steps) == when


def test_each_key_that_changes_something_has_a_time() -> None:
    page = {(key, stack) for key, _, stack in listed()}
    reached = listed_reaches()
    times = {when for found in reached.values() for when in found}
    assert times == {AT_ONCE, BOOTS, DRIFTS, ENDS, ROLLS}
    for change in (one for one in allowed() if not is_default(one)):
        assert (change.key, change.stack) in reached.keys() | page
