"""Monthly cost of permanent resources; workers' instances, data, logs and requests are extra."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from contracts import names
from gpu_spot.preflight import prices
from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.prices import Line, listed, priced
from gpu_spot.preflight.stack import Stack
from infra.catalogue import price_tables

_GROUP: Final = "aws:autoscaling/group:Group"
_LOAD_BALANCER: Final = "aws:lb/loadBalancer:LoadBalancer"
_NODE_GROUP: Final = "aws:eks/nodeGroup:NodeGroup"
_TEMPLATE: Final = "aws:ec2/launchTemplate:LaunchTemplate"
_BROKER_INSTANCES: Final = {"SINGLE_INSTANCE": 1, "CLUSTER_MULTI_AZ": 3}
"""Instances of a RabbitMQ broker, each billed by the hour ("Amazon MQ pricing", the example of a cluster)."""


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Add up permanent costs; warn if the budget is below them."""
    counted = [line for line in lines(stack) if line.count]
    for line in counted:
        if line.unit_price is None:
            advice = f"run {price_tables.UPDATE_COMMAND}, or see AWS's pricing pages"
            yield CheckResult(line.item, "not known", "not priced", advice)
            continue
        finding = f"{line.count} × ${line.unit_price:.2f} = ${line.cost:.2f}"
        if line.region != stack.region:
            finding += f" (price of {line.region})"
        yield CheckResult(line.item, "ok", finding)
    total = sum(line.cost for line in counted)
    unpriced = ", ".join(line.item for line in counted if line.unit_price is None)
    without = f"workers, and without {unpriced}" if unpriced else "workers"
    dates = sorted({line.date for line in counted if line.unit_price is not None}) or [prices.READ]
    span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    finding = f"${total:.0f} without {without} (list prices of {span})"
    budget = stack.settings.monitoring.monthly_budget_usd
    if budget is not None and total > budget:
        advice = f"the budget is ${budget:f}: increase it, or reduce the stack"
        yield CheckResult("total", "warning", finding, advice)
    else:
        yield CheckResult("total", "ok", finding)


def lines(stack: Stack) -> Iterator[Line]:
    """Yield the lines of the bill that do not depend on usage."""
    hours, region = prices.HOURS, stack.region

    def table(item: str, count: float, name: str, units: float = 1.0) -> Line:
        return priced(item, count, prices.of(name, region), units)

    nats = _count(stack, "aws:ec2/natGateway:NatGateway")
    yield table("NAT gateways", nats, price_tables.NAT_GATEWAY, hours)
    nodes = {
        r.name: int(r.inputs["scalingConfig"]["desiredSize"]) for r in stack.declared if r.type == _NODE_GROUP
    }
    addresses = _count(stack, "aws:ec2/eip:Eip") + _addresses_of_load_balancers(stack)
    if stack.settings.network.egress == "public":
        addresses += sum(stack.proxies.values()) + sum(nodes.values())
    yield table("public IPv4 addresses", addresses, price_tables.PUBLIC_IPV4, hours)
    zones = sum(
        len(inputs.get("subnetIds", ())) for inputs in stack.of_type("aws:ec2/vpcEndpoint:VpcEndpoint")
    )
    yield table("interface endpoints × zones", zones, price_tables.INTERFACE_ENDPOINT, hours)
    yield table("load balancers", _count(stack, _LOAD_BALANCER), price_tables.LOAD_BALANCER, hours)
    for kind, count in sorted(stack.proxies.items()):
        yield priced(f"proxies {kind}", count, prices.node_hour(kind, region), hours)
    yield table("GiB of proxies", _proxies_gib(stack), price_tables.EBS_GP3)
    yield table("GiB of stopped warm instances", _warm_gib(stack), price_tables.EBS_GP3)
    for name, type_, unit_price in (
        ("alarms", "aws:cloudwatch/metricAlarm:MetricAlarm", prices.ALARM_MONTH),
        ("dashboards", "aws:cloudwatch/dashboard:Dashboard", prices.DASHBOARD_MONTH),
        ("secrets", "aws:secretsmanager/secret:Secret", prices.SECRET_MONTH),
        ("KMS keys", "aws:kms/key:Key", prices.KMS_KEY_MONTH),
    ):
        yield listed(name, _count(stack, type_), unit_price, region)
    clusters = _count(stack, "aws:eks/cluster:Cluster")
    yield table("EKS control planes", clusters, price_tables.EKS_CLUSTER, hours)
    for kind, count in sorted(_nodes(stack).items()):
        yield priced(f"system nodes {kind}", count, prices.node_hour(kind, region), hours)
    yield table("GiB of system nodes", _gib(stack, nodes), price_tables.EBS_GP3)
    for (kind, mode), count in sorted(_brokers(stack).items()):
        yield table(f"broker {kind}, {mode}", count * _BROKER_INSTANCES.get(mode, 1), kind, hours)


def _addresses_of_load_balancers(stack: Stack) -> int:
    """Return the public addresses of load balancers: at least one in each subnet ("Amazon VPC pricing")."""
    return sum(
        len(inputs.get("subnets", ())) for inputs in stack.of_type(_LOAD_BALANCER) if not inputs["internal"]
    )


def _proxies_gib(stack: Stack) -> int:
    groups = (r for r in stack.declared if r.type == _GROUP and _is_of_proxies(r.inputs))
    return _gib(stack, {r.name: int(r.inputs["desiredCapacity"]) for r in groups})


def _is_of_proxies(group: Mapping[str, Any]) -> bool:
    return any(tag["key"] == names.TAG_PROXY for tag in group.get("tags", ()))


def _brokers(stack: Stack) -> Counter[tuple[str, str]]:
    """Return the number of brokers by instance type and deployment mode."""
    return Counter(
        (str(broker["hostInstanceType"]), str(broker["deploymentMode"]))
        for broker in stack.of_type("aws:mq/broker:Broker")
    )


def _nodes(stack: Stack) -> Counter[str]:
    """Return the number of system nodes by type."""
    counts = Counter[str]()
    for inputs in stack.of_type(_NODE_GROUP):
        [kind] = inputs["instanceTypes"]
        counts[kind] += int(inputs["scalingConfig"]["desiredSize"])
    return counts


def _gib(stack: Stack, groups: Mapping[str, int]) -> int:
    """Return the GiB of the root volumes of groups' instances; a group has the name of its template."""
    templates = {r.name: r.inputs for r in stack.declared if r.type == _TEMPLATE}
    return sum(
        count * int(disk["ebs"]["volumeSize"])
        for name, count in groups.items()
        for disk in templates[name]["blockDeviceMappings"]
    )


def _count(stack: Stack, type_: str) -> int:
    return sum(1 for _ in stack.of_type(type_))


def _warm_gib(stack: Stack) -> int:
    return sum(
        capacity.warm_instances * capacity.root_volume_gib
        for capacity in stack.settings.on_instances.capacities.values()
    )
