"""What the stand-ins refuse, as the providers do."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from infra.iam.preview_statements import PulumiState
from packages.pulumi_standins.schema import problems, resource_schema
from packages.pulumi_standins.values import SIGNATURE, UNKNOWN, differences, text
from packages.pulumi_standins.world import Fault
from tests.engine.workspace import Workspace

SUBNET = "aws:ec2/subnet:Subnet"
GROUP = "aws:autoscaling/group:Group"


@pytest.mark.parametrize(
    ("token", "inputs", "expected"),
    [
        (SUBNET, {"vpcId": "vpc-1"}, []),
        (SUBNET, {"vpcId": UNKNOWN, "mapPublicIpOnLaunch": "true"}, []),
        (SUBNET, {}, [("vpcId", "missing, required")]),
        (SUBNET, {"vpcId": "vpc-1", "zone": "a"}, [("zone", "unknown input")]),
        (
            SUBNET,
            {"vpcId": "vpc-1", "mapPublicIpOnLaunch": "yes"},
            [("mapPublicIpOnLaunch", "must be bool, not 'yes'")],
        ),
        (
            GROUP,
            {"minSize": 1, "maxSize": 2, "mixedInstancesPolicy": {"instancesDistribution": {"share": 1}}},
            [
                ("mixedInstancesPolicy.launchTemplate", "missing, required"),
                ("mixedInstancesPolicy.instancesDistribution.share", "unknown input"),
            ],
        ),
        ("aws:iam/role:Role", {"assumeRolePolicy": "{}"}, []),  # a text or an object
    ],
)
def test_inputs_are_checked_against_the_sdk(token: str, inputs: dict[str, Any], expected: Any) -> None:
    schema = resource_schema(token)
    assert schema is not None
    assert list(problems(schema, inputs)) == expected


def test_a_type_that_the_sdk_lacks_has_no_schema() -> None:
    assert resource_schema("aws:ec2/network:Network") is None


def test_a_difference_has_a_path_in_pulumis_notation() -> None:
    archive = {SIGNATURE: "archive", "hash": "a"}
    old = {"tags": {"gpu-spot:stack": "a"}, "zones": ["a"], "code": archive}
    new = {"tags": {"gpu-spot:stack": "b"}, "zones": ["a", "b"], "code": {**archive, "path": "elsewhere"}}
    assert [(text(path), kind) for path, kind in differences(old, new)] == [
        ('tags["gpu-spot:stack"]', "UPDATE"),
        ("zones[1]", "ADD"),
    ]


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a local state; ``.attrs`` are Go Cloud's own and no objects of a bucket."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".attrs")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize("compressed", [False, True])
def test_an_update_touches_the_keys_of_the_roles_and_a_preview_none(
    compressed: bool, workspace: Workspace
) -> None:
    folder = workspace.folder / "state"
    gzip = {"PULUMI_DIY_BACKEND_GZIP": "true"} if compressed else {}
    state = PulumiState("gpu-spot", workspace.stack, "acme-state", None)
    before = contents(folder)
    assert before
    workspace.preview(**gzip)
    assert contents(folder) == before

    workspace.up(**gzip)
    after = contents(folder)
    written = {key for key in after if before.get(key) != after[key]}
    assert len(written) >= 4  # the checkpoint, its history twice, its backup
    assert {re.sub(r"\d{10,}", "T", key) for key in written} >= {
        f".pulumi/stacks/gpu-spot/dev.json{'.gz' if compressed else ''}"
    }
    assert not [key for key in written if not any(fnmatchcase(key, pattern) for pattern in state.write)]
    assert [key for key in state.read if key in after]
    workspace.preview(**gzip)
    assert contents(folder) == after


def test_the_lock_of_an_update_is_a_key_of_its_roles(workspace: Workspace) -> None:
    folder = workspace.folder / "state"
    workspace.world.plant(Fault("create", match=":Vpc::", effect="hang"))
    with workspace.started("up", "--yes", "--skip-preview"):
        workspace.wait_until_it_hangs()
        [lock] = [key for key in contents(folder) if key.startswith(".pulumi/locks/")]
        patterns = PulumiState("gpu-spot", workspace.stack, "acme-state", None).write
        assert [pattern for pattern in patterns if fnmatchcase(lock, pattern)]
        workspace.preview()  # which a lock does not stop
