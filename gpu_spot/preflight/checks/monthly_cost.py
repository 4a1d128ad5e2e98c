"""Monthly cost of permanent resources; workers' instances, data, logs and requests are extra."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from gpu_spot.preflight import prices
from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.stack import Stack

NAME: Final = "monthly cost"
_NODE_GROUP: Final = "aws:eks/nodeGroup:NodeGroup"
_TEMPLATE: Final = "aws:ec2/launchTemplate:LaunchTemplate"


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Add up permanent costs; warn if the budget is below them."""
    total = 0.0
    for subject, count, price in lines(stack):
        if count:
            total += count * price
            yield CheckResult(subject, "ok", f"{count} × ${price:.2f} = ${count * price:.2f}")
    for kind, mode in sorted(
        (broker["hostInstanceType"], broker["deploymentMode"])
        for broker in stack.of_type("aws:mq/broker:Broker")
    ):
        # Public copies of the price page do not include brokers.
        finding, advice = "not included", 'see the AWS page "Amazon MQ pricing"; add its storage'
        yield CheckResult(f"broker {kind}, {mode}", "not known", finding, advice)
    for kind in unpriced_nodes(stack):
        finding, advice = "not included", 'see the AWS page "Amazon EC2 On-Demand Pricing"'
        yield CheckResult(f"system nodes {kind}", "not known", finding, advice)
    finding = f"${total:.0f} without workers"
    if stack.region in prices.SAME_PRICES:
        finding += f" (list prices of {prices.READ})"
    else:
        finding += f" (prices of {prices.REGION}, {prices.READ}; {stack.region} is more expensive)"
    budget = stack.settings.monitoring.monthly_budget_usd
    if budget is not None and total > budget:
        yield CheckResult(
            "total", "warning", finding, f"the budget is ${budget}: increase it, or reduce the stack"
        )
    else:
        yield CheckResult("total", "ok", finding)


def lines(stack: Stack, listed: Mapping[str, float] | None = None) -> Iterator[tuple[str, int, float]]:
    """Yield item, quantity and US dollars per month for one.

    ``listed`` are hourly instance prices that replace the shipped ones.
    """
    hours = prices.HOURS
    yield "NAT gateways", _count(stack, "aws:ec2/natGateway:NatGateway"), prices.NAT_GATEWAY_HOUR * hours
    yield "public IPv4 addresses", _count(stack, "aws:ec2/eip:Eip"), prices.PUBLIC_ADDRESS_HOUR * hours
    zones = sum(
        len(inputs.get("subnetIds", ())) for inputs in stack.of_type("aws:ec2/vpcEndpoint:VpcEndpoint")
    )
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
    """Return the types of system nodes without a known price, which ``lines`` omits."""
    return sorted(kind for kind in _nodes(stack) if _node_hour(kind, listed) is None)


def _node_hour(kind: str, listed: Mapping[str, float] | None) -> float | None:
    return (listed or {}).get(kind, prices.node_hour(kind))


def _nodes(stack: Stack) -> Counter[str]:
    """Return the number of system nodes by type."""
    counts = Counter[str]()
    for inputs in stack.of_type(_NODE_GROUP):
        [kind] = inputs["instanceTypes"]
        counts[kind] += int(inputs["scalingConfig"]["desiredSize"])
    return counts


def _nodes_gib(stack: Stack) -> int:
    """Return the GiB of the nodes' root volumes; a template has the name of its node group."""
    templates = {r.name: r.inputs for r in stack.declared if r.type == _TEMPLATE}
    groups = [(r.name, r.inputs) for r in stack.declared if r.type == _NODE_GROUP]
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
