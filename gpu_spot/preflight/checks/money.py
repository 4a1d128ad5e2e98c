"""What the stack costs before it does any work. Workers' instances, data, logs and requests come on top."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from gpu_spot.preflight import prices
from gpu_spot.preflight.account import Account
from gpu_spot.preflight.remark import Remark
from gpu_spot.preflight.stack import Stack

NAME: Final = "money a month"
_NODE_GROUP: Final = "aws:eks/nodeGroup:NodeGroup"
_TEMPLATE: Final = "aws:ec2/launchTemplate:LaunchTemplate"


def look(stack: Stack, account: Account) -> Iterator[Remark]:
    """Add up what is paid all the time; a budget below that is a warning."""
    total = 0.0
    for subject, count, price in lines(stack):
        if count:
            total += count * price
            yield Remark(subject, "ok", f"{count} × ${price:.2f} = ${count * price:.2f}")
    for kind, mode in sorted(
        (one["hostInstanceType"], one["deploymentMode"]) for one in stack.of_type("aws:mq/broker:Broker")
    ):
        # Their prices are in no public copy of the page.
        found, advice = "not in the total", 'look at AWS\'s page "Amazon MQ pricing", and add its disk'
        yield Remark(f"broker {kind}, {mode}", "not known", found, advice)
    for kind in unpriced_nodes(stack):
        found, advice = "not in the total", 'look at AWS\'s page "Amazon EC2 On-Demand Pricing"'
        yield Remark(f"system nodes {kind}", "not known", found, advice)
    told = f"${total:.0f} before any worker runs"
    if stack.region in prices.SAME_PRICES:
        told += f" (list prices of {prices.READ})"
    else:
        told += f" (prices of {prices.REGION}, {prices.READ}; {stack.region} asks more)"
    budget = stack.settings.monitoring.monthly_budget_usd
    if budget is not None and total > budget:
        yield Remark("total", "warning", told, f"the budget is ${budget}: raise it, or ask for less")
    else:
        yield Remark("total", "ok", told)


def lines(stack: Stack, listed: Mapping[str, float] | None = None) -> Iterator[tuple[str, int, float]]:
    """Yield what, how many, and dollars a month for one.

    ``listed`` are instances' prices an hour that were read elsewhere, in place of the shipped ones.
    """
    hours = prices.HOURS
    yield "NAT gateways", _count(stack, "aws:ec2/natGateway:NatGateway"), prices.NAT_GATEWAY_HOUR * hours
    yield "public IPv4 addresses", _count(stack, "aws:ec2/eip:Eip"), prices.PUBLIC_ADDRESS_HOUR * hours
    zones = sum(len(one.get("subnetIds", ())) for one in stack.of_type("aws:ec2/vpcEndpoint:VpcEndpoint"))
    yield "interface endpoints × zones", zones, prices.ENDPOINT_ZONE_HOUR * hours
    yield "GiB of stopped warm instances", _warm_gib(stack), prices.GP3_GIB_MONTH
    yield "alarms", _count(stack, "aws:cloudwatch/metricAlarm:MetricAlarm"), prices.ALARM_MONTH
    yield "dashboards", _count(stack, "aws:cloudwatch/dashboard:Dashboard"), prices.DASHBOARD_MONTH
    yield "secrets", _count(stack, "aws:secretsmanager/secret:Secret"), prices.SECRET_MONTH
    yield "KMS keys", _count(stack, "aws:kms/key:Key"), prices.KMS_KEY_MONTH
    yield "EKS control planes", _count(stack, "aws:eks/cluster:Cluster"), prices.CLUSTER_HOUR * hours
    for kind, count in sorted(_nodes(stack).items()):
        if (price := _node_hour(kind, listed)) is not None:
            yield f"system nodes {kind}", count, price * hours
    yield "GiB of system nodes", _nodes_gib(stack), prices.GP3_GIB_MONTH


def unpriced_nodes(stack: Stack, listed: Mapping[str, float] | None = None) -> list[str]:
    """Return the types of system nodes that ``lines`` leaves out because nobody knows their price."""
    return sorted(kind for kind in _nodes(stack) if _node_hour(kind, listed) is None)


def _node_hour(kind: str, listed: Mapping[str, float] | None) -> float | None:
    return (listed or {}).get(kind, prices.node_hour(kind))


def _nodes(stack: Stack) -> Counter[str]:
    """Return how many nodes of each type the clusters' node groups hold."""
    found = Counter[str]()
    for one in stack.of_type(_NODE_GROUP):
        [kind] = one["instanceTypes"]
        found[kind] += int(one["scalingConfig"]["desiredSize"])
    return found


def _nodes_gib(stack: Stack) -> int:
    """Return their roots, by the templates that are named as they are."""
    templates = {one.name: one.inputs for one in stack.declared if one.type == _TEMPLATE}
    groups = [(one.name, one.inputs) for one in stack.declared if one.type == _NODE_GROUP]
    return sum(
        int(group["scalingConfig"]["desiredSize"]) * int(disk["ebs"]["volumeSize"])
        for name, group in groups
        for disk in templates[name]["blockDeviceMappings"]
    )


def _count(stack: Stack, type_: str) -> int:
    return sum(1 for _ in stack.of_type(type_))


def _warm_gib(stack: Stack) -> int:
    return sum(
        capacity.warm_instances * capacity.root_volume_gib
        for capacity in stack.settings.on_instances.capacities.values()
    )
