"""The controller's recorded calls need exactly the permissions of its deployed role."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, Final

from contracts import names
from lambdas.core.model import GroupRole, PurchaseOption
from pulumi_on_moto.emulator import ACCOUNT
from pulumi_on_moto.running.functions import Call
from tests.apart import apart
from tests.e2e.calls import Authorisation, of_function
from tests.e2e.world import World, living, load, small
from tests.iam import Request, allowed_actions, allows

HOURS = 3
SEED = 13

NOT_ITS_OWN_CALLS: Final = {
    "logs:CreateLogStream": "Lambda writes the function's log with the function's role",
    "logs:PutLogEvents": "Lambda writes the function's log with the function's role",
    "sqs:ReceiveMessage": "Lambda polls the queue with the function's role",
    "sqs:DeleteMessage": "Lambda polls the queue with the function's role",
    "sqs:GetQueueAttributes": "Lambda polls the queue with the function's role",
    "ec2:CreateFleet": "LaunchInstances launches with the caller's permissions",
    "ec2:DescribeLaunchTemplateVersions": "LaunchInstances reads templates with the caller's permissions",
    "sqs:ChangeMessageVisibility": "only where something fails: tests/lambdas/test_handler.py",
}


def policies(world: World) -> list[dict[str, Any]]:
    """Return the documents of the controller's role."""
    return of_function(world.deployment, world.deployment.outputs["controllerFunction"])


def recorded(stack: str) -> tuple[list[dict[str, Any]], list[Request]]:
    """Return the controller's policies, and what it asked of IAM in a replay."""
    with living(load(stack, small()), SEED) as world:
        authorisation = Authorisation(world.clients)
        asked: dict[str, Request] = {}

        def on_call(call: Call) -> None:
            if call.function != world.deployment.outputs["controllerFunction"]:
                return  # the health checker's are held to its role in tests/e2e/test_health.py
            for request in authorisation.requests(call):
                asked.setdefault(repr(request), request)

        world.cloud.listen(on_call)
        world.replay(world.fleet(), HOURS).run(HOURS * 60)
        _scale_in(world)
        return policies(world), list(asked.values())


def _scale_in(world: World) -> None:
    """Give the primary side more than a new target needs, so that the controller lets members of it go."""
    cloud, view = world.cloud, world.view
    launched = [
        cloud.launch(view.name, GroupRole.PRIMARY, view.instance_types[0], view.zones[0], PurchaseOption.SPOT)
        for _ in range(4)
    ]
    target = names.group_parameter(world.deployment.stack, view.name, names.PARAMETER_TARGET)
    world.clients("ssm").put_parameter(Name=target, Value="2", Overwrite=True)
    cloud.heartbeat(launched)
    cloud.tick_schedule()
    cloud.run_functions()
    assert len(cloud.alive(view.name, GroupRole.PRIMARY)) == 2


def without(policies: list[dict[str, Any]], action: str) -> list[dict[str, Any]]:
    """Return the documents with one action taken out."""
    original = copy.deepcopy(policies)
    for document in original:
        for statement in document["Statement"]:
            statement["Action"] = [one for one in statement["Action"] if one != action]
    return original


def test_the_controllers_role_has_exactly_the_needed_permissions() -> None:
    used: set[str] = set()
    granted: set[str] = set()
    for stack in ("dev", "fleet"):
        role, asked = apart(recorded, stack)
        assert [request for request in asked if not allows(role, request)] == []
        for request in asked:
            assert not allows(without(role, request.action), request)
            if request.resource != "*":
                foreign = request.resource.replace(ACCOUNT, "210987654321")
                assert not allows(role, replace(request, resource=foreign))
            if any(key.startswith("aws:ResourceTag/") for key in request.context):
                other = {**request.context, f"aws:ResourceTag/{names.TAG_STACK}": ["other"]}
                assert not allows(role, replace(request, context=other))
        granted |= allowed_actions(role)
        used |= {request.action for request in asked}
    assert used.isdisjoint(NOT_ITS_OWN_CALLS)
    assert granted - used == set(NOT_ITS_OWN_CALLS)
