"""Run a program again against the living local cloud: what it declares differently, changed in place.

As in ``pulumi up --refresh``, what a program declared before counts as AWS shows it now. This is for tests of
what ``up`` leaves alone. It knows the resources whose change reaches capacity; any other difference is an
error that names it, and nothing is ever replaced or deleted here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pulumi

from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.mapping import SPECS
from pulumi_on_moto.mapping.base import Draft, create
from pulumi_on_moto.program import stackfile
from pulumi_on_moto.program.archives import asset_bytes, zip_bytes
from pulumi_on_moto.program.lookups import Lookups
from pulumi_on_moto.program.provision import Monitor
from pulumi_on_moto.program.record import Deployment, Resource
from pulumi_on_moto.program.run import default_tags, run_with
from pulumi_on_moto.sandbox import AwsClients


@dataclass(frozen=True, slots=True)
class Change:
    """A resource that the second run declares differently.

    ``inputs`` are the names of its inputs that differ and that the program does not ignore; none: the
    resource is new, or no longer declared (``gone``).
    """

    type: str
    name: str
    inputs: frozenset[str] = frozenset()
    gone: bool = False


def up(
    clients: AwsClients, config: stackfile.StackConfig, before: Deployment
) -> tuple[Deployment, tuple[Change, ...]]:
    """Run the program of ``config`` again; return what stands then, and what was changed on the way.

    Raises:
        LocalCloudError: a difference cannot be carried out in place here.
    """
    monitor = _SecondMonitor(clients, default_tags(config), before)
    after = run_with(monitor, clients, config)
    declared = {resource.urn for resource in after.resources}
    gone = (
        Change(resource.type, resource.name, gone=True)
        for resource in before.resources
        if resource.urn not in declared
    )
    return replace(after, code=before.code), (*monitor.changes, *gone)


class _SecondMonitor(Monitor):
    """Compares what is registered with what stands, as the engine does after a refresh."""

    def __init__(self, clients: AwsClients, tags: dict[str, str], before: Deployment) -> None:
        super().__init__(clients, Lookups(clients), tags)
        self.changes: list[Change] = []
        self._before = {resource.urn: resource for resource in before.resources}

    def _register(self, request: Any, urn: str, inputs: dict[str, Any]) -> Resource:
        old = self._before.get(urn)
        if old is None:
            self.changes.append(Change(request.type, request.name))
            return super()._register(request, urn, inputs)
        if old.is_component:
            return self._keep(replace(old, inputs=inputs, outputs=inputs))
        old = _refreshed(self._clients, old)
        given = {key: value for key, value in inputs.items() if value is not None}
        ignored = _ignored(request)
        wanted = {**given, **{key: old.inputs[key] for key in ignored & old.inputs.keys()}}
        differing = frozenset(
            key
            for key in (wanted.keys() | old.inputs.keys()) - ignored
            if not _same(old.inputs.get(key), wanted.get(key))
        )
        if not differing:
            return self._keep(old)
        self.changes.append(Change(old.type, old.name, differing))
        update = _UPDATES.get(old.type)
        if update is None:
            raise LocalCloudError(
                f'{old.type} "{old.name}": {", ".join(sorted(differing))} cannot be changed in place here'
            )
        draft = Draft(old.type, old.name, urn, self._clients, {key: wanted.get(key) for key in differing})
        seen = update(draft, old, wanted)
        return self._keep(replace(old, inputs=wanted, outputs={**old.outputs, **wanted, **seen}))


def _refreshed(clients: AwsClients, old: Resource) -> Resource:
    """Return a resource with the inputs that others than the program can move as AWS shows them now."""
    read = _READ.get(old.type)
    if read is None:
        return old
    seen = read(clients, old)
    return replace(old, inputs={key: seen.get(key, value) for key, value in old.inputs.items()})


def _ignored(request: Any) -> frozenset[str]:
    for path in request.ignoreChanges:
        if "." in path or "[" in path:
            raise LocalCloudError(
                f'{request.type} "{request.name}": ignore_changes {path!r}, whole inputs only'
            )
    return frozenset(request.ignoreChanges)


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, pulumi.Archive) and isinstance(new, pulumi.Archive):
        return zip_bytes(old) == zip_bytes(new)
    if isinstance(old, pulumi.Asset) and isinstance(new, pulumi.Asset):
        return asset_bytes(old) == asset_bytes(new)
    return bool(old == new)


def _template(draft: Draft, old: Resource, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """A launch template changes by a new version."""
    whole = Draft(draft.type, draft.name, draft.urn, draft.clients, dict(wanted))
    for key in ("tags", "tagsAll", "region", "updateDefaultVersion"):
        whole.take(key)
    whole.inputs.setdefault("name", old.outputs["name"])
    shape = SPECS[old.type].shape
    if shape is not None:
        shape(whole)
    del whole.params["LaunchTemplateName"]
    reply = draft.clients("ec2").create_launch_template_version(LaunchTemplateId=old.id, **whole.params)
    number = reply["LaunchTemplateVersion"]["VersionNumber"]
    if wanted.get("updateDefaultVersion"):
        draft.clients("ec2").modify_launch_template(LaunchTemplateId=old.id, DefaultVersion=str(number))
    return {"latestVersion": number}


def _group(draft: Draft, old: Resource, wanted: Mapping[str, Any]) -> dict[str, Any]:
    shaped = draft.matched("autoscaling", "UpdateAutoScalingGroup", draft.inputs, "group")
    draft.clients("autoscaling").update_auto_scaling_group(AutoScalingGroupName=old.id, **shaped)
    return {}


def _parameter(draft: Draft, old: Resource, wanted: Mapping[str, Any]) -> dict[str, Any]:
    value = draft.take("insecureValue")
    if value is None or draft.inputs:
        raise draft.fail(f"{', '.join(sorted(draft.inputs)) or 'value'} cannot be changed in place here")
    draft.clients("ssm").put_parameter(Name=wanted["name"], Value=value, Overwrite=True)
    return {}


def _put_again(draft: Draft, old: Resource, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """For what AWS creates and changes by one and the same call."""
    whole = Draft(draft.type, draft.name, draft.urn, draft.clients, dict(wanted))
    create(SPECS[old.type], whole)
    return {}


def _read_group(clients: AwsClients, old: Resource) -> dict[str, Any]:
    (group,) = clients("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[old.id])[
        "AutoScalingGroups"
    ]
    return {
        "minSize": group["MinSize"],
        "maxSize": group["MaxSize"],
        "desiredCapacity": group["DesiredCapacity"],
    }


def _read_fleet(clients: AwsClients, old: Resource) -> dict[str, Any]:
    (fleet,) = clients("ec2").describe_spot_fleet_requests(SpotFleetRequestIds=[old.id])[
        "SpotFleetRequestConfigs"
    ]
    config = fleet["SpotFleetRequestConfig"]
    seen = {
        "targetCapacity": config["TargetCapacity"],
        "onDemandTargetCapacity": config["OnDemandTargetCapacity"],
    }
    if "ExcessCapacityTerminationPolicy" in config:
        seen["excessCapacityTerminationPolicy"] = config["ExcessCapacityTerminationPolicy"]
    return seen


def _read_parameter(clients: AwsClients, old: Resource) -> dict[str, Any]:
    parameter = clients("ssm").get_parameter(Name=old.inputs["name"])["Parameter"]
    return {"insecureValue": parameter["Value"]}


_READ: Final[dict[str, Callable[[AwsClients, Resource], dict[str, Any]]]] = {
    "aws:autoscaling/group:Group": _read_group,
    "aws:ec2/spotFleetRequest:SpotFleetRequest": _read_fleet,
    "aws:ssm/parameter:Parameter": _read_parameter,
}

_Update = Callable[[Draft, Resource, Mapping[str, Any]], dict[str, Any]]
_UPDATES: Final[dict[str, _Update]] = {
    "aws:ec2/launchTemplate:LaunchTemplate": _template,
    "aws:autoscaling/group:Group": _group,
    "aws:ssm/parameter:Parameter": _parameter,
    "aws:cloudwatch/metricAlarm:MetricAlarm": _put_again,
}
