"""Second run of a program: differences to the deployment, reported or updated in place.

As in ``pulumi up --refresh``, values that other clients can change, too, are read from AWS: the capacity of
groups and fleets, the value of parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pulumi

from pulumi_on_moto.cluster.clusters import PREFIX
from pulumi_on_moto.emulator import AwsClients
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.mapping import SPECS
from pulumi_on_moto.mapping.archives import asset_bytes, zip_bytes
from pulumi_on_moto.mapping.base import ResourceRequest, create
from pulumi_on_moto.mapping.shapes import supplied
from pulumi_on_moto.program.deployment import Deployment
from pulumi_on_moto.program.monitor import Resource, run
from pulumi_on_moto.program.provision import PROVIDER_PREFIX, Provisioner
from pulumi_on_moto.program.stackfile import Stack


def with_ignored(inputs: Mapping[str, Any], old: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """Return inputs with the state's values at the ignored paths, such as ``vpcConfig.subnetIds``.

    A value that is not in the state stays the program's.

    Raises:
        ValueError: a path has an index or a quoted key, such as ``tags["x"]``.
    """
    result = dict(inputs)
    for path in paths:
        if "[" in path:
            raise ValueError(f"an ignored path must be names of inputs, separated by dots, not {path!r}")
        name, _, below = path.partition(".")
        if name not in old:
            continue
        if not below:
            result[name] = old[name]
        elif isinstance(result.get(name), Mapping) and isinstance(old[name], Mapping):
            result[name] = with_ignored(result[name], old[name], [below])
    return result


@dataclass(frozen=True, slots=True)
class Change:
    """A resource that the second run declares differently.

    ``inputs`` are the names of its inputs that differ and that the program does not ignore; empty: the
    resource is new, or no longer declared (``gone``).
    """

    type: str
    name: str
    inputs: frozenset[str] = frozenset()
    is_removed: bool = False


def changes(deployment: Deployment, config: Stack) -> tuple[Change, ...]:
    """Run the program of ``config`` again and return what ``up`` would change, without changes.

    Outputs of a new resource are unknown, as in a preview. The result does not distinguish updates in place
    from replacements.

    Raises:
        LocalCloudError: an ignored path has an index or a quoted key (``tags["x"]``).
    """
    monitor = _Comparing(deployment, config)
    run(monitor, config)
    return monitor.changes()


def up(deployment: Deployment, config: Stack) -> tuple[Deployment, tuple[Change, ...]]:
    """Run the program of ``config`` again and apply changes; return the new deployment and the changes.

    New resources are created. Launch templates, Auto Scaling groups, parameters and alarms are updated in
    place; nothing is replaced or deleted, and the code of functions does not change.

    Raises:
        LocalCloudError: a difference cannot be applied in place here; the message names it.
    """
    monitor = _Applying(deployment, config)
    run(monitor, config)
    after = replace(
        deployment,
        resources=tuple(monitor.recorded),
        outputs=monitor.exports,
        secret_outputs=monitor.secret_exports,
    )
    return after, monitor.changes()


class _Comparing(Provisioner):
    """Compares registered resources with the deployment, as the engine does after a refresh."""

    def __init__(self, before: Deployment, config: Stack) -> None:
        super().__init__(before.clients, config, before.clusters)
        self._changes: list[Change] = []
        self._before = {resource.urn: resource for resource in before.resources}

    def changes(self) -> tuple[Change, ...]:
        """Return the changes in the order of the program, then resources no longer declared."""
        declared = {resource.urn for resource in self.recorded}
        removed = (
            Change(resource.type, resource.name, is_removed=True)
            for resource in self._before.values()
            if resource.urn not in declared
        )
        return (*self._changes, *removed)

    def _register(self, request: Any, urn: str, parent: str, inputs: dict[str, Any]) -> Resource:
        old = self._before.get(urn)
        if request.type.startswith(PROVIDER_PREFIX):
            self._provider(request.type, request.name, inputs)  # its tags apply to new resources
        if old is None:
            self._changes.append(Change(request.type, request.name))
            return self._new(request, urn, parent, inputs)
        if old.is_component:
            return replace(old, inputs=inputs, outputs=inputs)
        old = self._refreshed(old)
        desired = _unchanged(request, supplied(inputs), old.inputs)
        differing = frozenset(
            key
            for key in (desired.keys() | old.inputs.keys()) - {*request.ignoreChanges}
            if not _same(old.inputs.get(key), desired.get(key))
        )
        if not differing:
            return old
        self._changes.append(Change(old.type, old.name, differing))
        return self._changed(old, desired, differing)

    def _refreshed(self, old: Resource) -> Resource:
        """Return a resource with the current values of inputs that other clients can change."""
        if old.type.startswith(PREFIX):
            return replace(old, inputs=self.clusters.read(old.type, old.inputs, old.provider))
        read = _READ.get(old.type)
        if read is None:
            return old
        actual = read(self._clients, old)
        return replace(old, inputs={key: actual.get(key, value) for key, value in old.inputs.items()})

    def _new(self, request: Any, urn: str, parent: str, inputs: dict[str, Any]) -> Resource:
        """Return a resource without an id: its computed outputs are unknown."""
        return Resource(urn, request.type, request.name, parent, "", inputs, inputs, {})

    def _changed(self, old: Resource, desired: dict[str, Any], differing: frozenset[str]) -> Resource:
        return replace(old, inputs=desired, outputs={**old.outputs, **desired})


class _Applying(_Comparing):
    """Applies differences."""

    def _new(self, request: Any, urn: str, parent: str, inputs: dict[str, Any]) -> Resource:
        return Provisioner._register(self, request, urn, parent, inputs)

    def _changed(self, old: Resource, desired: dict[str, Any], differing: frozenset[str]) -> Resource:
        if old.type.startswith(PREFIX):
            self.clusters.declare(old.type, old.name, desired, old.provider)
            return replace(old, inputs=desired, outputs=desired)
        update = _UPDATES.get(old.type)
        if update is None:
            raise LocalCloudError(
                f'{old.type} "{old.name}": {", ".join(sorted(differing))} cannot be changed in place here'
            )
        draft = ResourceRequest(
            old.type, old.name, old.urn, self._clients, {key: desired.get(key) for key in differing}
        )
        updated = update(draft, old, desired)
        return replace(old, inputs=desired, outputs={**old.outputs, **desired, **updated})


def _unchanged(request: Any, inputs: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return with_ignored(inputs, old, request.ignoreChanges)
    except ValueError as error:
        raise LocalCloudError(f'{request.type} "{request.name}": {error}') from None


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, pulumi.Archive) and isinstance(new, pulumi.Archive):
        return zip_bytes(old) == zip_bytes(new)
    if isinstance(old, pulumi.Asset) and isinstance(new, pulumi.Asset):
        return asset_bytes(old) == asset_bytes(new)
    return bool(old == new)


def _whole(draft: ResourceRequest, desired: Mapping[str, Any]) -> ResourceRequest:
    """Return a request with all inputs instead of those that differ."""
    return ResourceRequest(draft.type, draft.name, draft.urn, draft.clients, dict(desired))


def _template(draft: ResourceRequest, old: Resource, desired: Mapping[str, Any]) -> dict[str, Any]:
    """Update a launch template by a new version."""
    whole = _whole(draft, desired)
    for key in ("tags", "tagsAll", "region", "updateDefaultVersion"):
        whole.take(key)
    whole.inputs.setdefault("name", old.outputs["name"])
    shape = SPECS[old.type].shape
    if shape is not None:
        shape(whole)
    del whole.params["LaunchTemplateName"]
    reply = draft.clients("ec2").create_launch_template_version(LaunchTemplateId=old.id, **whole.params)
    number = reply["LaunchTemplateVersion"]["VersionNumber"]
    if desired.get("updateDefaultVersion"):
        draft.clients("ec2").modify_launch_template(LaunchTemplateId=old.id, DefaultVersion=str(number))
    return {"latestVersion": number}


def _group(draft: ResourceRequest, old: Resource, desired: Mapping[str, Any]) -> dict[str, Any]:
    shaped = draft.matched("autoscaling", "UpdateAutoScalingGroup", draft.inputs, "group")
    draft.clients("autoscaling").update_auto_scaling_group(AutoScalingGroupName=old.id, **shaped)
    return {}


def _parameter(draft: ResourceRequest, old: Resource, desired: Mapping[str, Any]) -> dict[str, Any]:
    value = draft.take("insecureValue") or draft.take("value")
    if value is None or draft.inputs:
        raise draft.fail(f"{', '.join(sorted(draft.inputs)) or 'value'} cannot be changed in place here")
    draft.clients("ssm").put_parameter(Name=old.id, Value=value, Overwrite=True)
    return {}


def _put_again(draft: ResourceRequest, old: Resource, desired: Mapping[str, Any]) -> dict[str, Any]:
    """Update a resource for which AWS has one call to create and update."""
    create(SPECS[old.type], _whole(draft, desired))
    return {}


def _read_group(clients: AwsClients, old: Resource) -> dict[str, Any]:
    reply = clients("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[old.id])
    return _values(reply["AutoScalingGroups"][0], "minSize", "maxSize", "desiredCapacity")


def _read_fleet(clients: AwsClients, old: Resource) -> dict[str, Any]:
    reply = clients("ec2").describe_spot_fleet_requests(SpotFleetRequestIds=[old.id])
    config = reply["SpotFleetRequestConfigs"][0]["SpotFleetRequestConfig"]
    return _values(config, "targetCapacity", "onDemandTargetCapacity", "excessCapacityTerminationPolicy")


def _read_parameter(clients: AwsClients, old: Resource) -> dict[str, Any]:
    parameter = clients("ssm").get_parameter(Name=old.id, WithDecryption=True)["Parameter"]
    return {"insecureValue": parameter["Value"], "value": parameter["Value"]}


def _values(described: Mapping[str, Any], *inputs: str) -> dict[str, Any]:
    """Return the values of inputs as AWS describes them; without those that it leaves out."""
    names = {key: key[0].upper() + key[1:] for key in inputs}
    return {key: described[name] for key, name in names.items() if name in described}


_READ: Final[dict[str, Callable[[AwsClients, Resource], dict[str, Any]]]] = {
    "aws:autoscaling/group:Group": _read_group,
    "aws:ec2/spotFleetRequest:SpotFleetRequest": _read_fleet,
    "aws:ssm/parameter:Parameter": _read_parameter,
}

_Update = Callable[[ResourceRequest, Resource, Mapping[str, Any]], dict[str, Any]]
_UPDATES: Final[dict[str, _Update]] = {
    "aws:ec2/launchTemplate:LaunchTemplate": _template,
    "aws:autoscaling/group:Group": _group,
    "aws:ssm/parameter:Parameter": _parameter,
    "aws:cloudwatch/metricAlarm:MetricAlarm": _put_again,
}
