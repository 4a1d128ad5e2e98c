"""Fixed monthly costs of a stack: the declared resources except workers' instances, with prices.

Similar entries declare similar resources. The program runs with one entry of each kind, and the resources of
that entry are multiplied by the number of such entries.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from gpu_spot.preflight import prices
from gpu_spot.preflight.checks import monthly_cost
from gpu_spot.preflight.stack import Declared, Stack
from infra.catalogue import accelerators
from infra.schema import Settings
from infra.settings import PROJECT
from pulumi_declared.stackfile import StackConfig

_ENTRY_LISTS: Final = (f"{PROJECT}:services", f"{PROJECT}:training")
_SIGNIFICANT_KEYS: Final = (
    *("kind", "fleetType", "deployment", "engineVersion", "checkpoints", "instanceType"),
    "runsOn",
)
"""Keys whose text determines the declared resources."""
_INVOCATIONS: Final = prices.HOURS * 60
"""Each function runs once a minute."""
_INVOCATION_SECONDS: Final = 1.0
"""Assumed duration of an invocation."""
_FUNCTION: Final = "aws:lambda/function:Function"
_ALARM: Final = "aws:cloudwatch/metricAlarm:MetricAlarm"
_CLUSTER: Final = "aws:eks/cluster:Cluster"
_OURS: Final = "gpu-spot"

Line = tuple[str, float, float]
"""Item, quantity, and US dollars per month for one."""


def reduce_entries(config: StackConfig) -> tuple[StackConfig, dict[str, int]]:
    """Return the stack with one entry of each kind, and by entry the number of entries it represents."""
    values, times = dict(config.values), dict[str, int]()
    for key in _ENTRY_LISTS:
        first: dict[str, Any] = {}
        counted = Counter[str]()
        for entry in values.get(key) or ():
            kind = _kind(entry)
            first.setdefault(kind, entry)
            counted[kind] += 1
        if first:
            values[key] = list(first.values())
            times |= {str(entry["name"]): counted[kind] for kind, entry in first.items()}
    return replace(config, values=values), times


def likeness(config: StackConfig) -> str:
    """Return a key that is equal for stack files that declare the same resources."""
    values = dict(config.values)
    for key in _ENTRY_LISTS:
        values[key] = [(entry["name"], _kind(entry)) for entry in values.get(key) or ()]
    return json.dumps([config.stack, values], sort_keys=True, default=str)


def _kind(entry: Mapping[str, Any]) -> str:
    """Return a key that is equal for entries that declare similar resources; a matrix is unique."""
    return json.dumps(entry if "matrix" in entry else _outline(entry), sort_keys=True, default=str)


def _outline(value: Any, key: str = "") -> Any:
    if isinstance(value, Mapping):
        return {name: _outline(inner, str(name)) for name, inner in value.items()}
    if key == "instanceTypes":
        return sorted({accelerators.lookup(str(kind)).family.vendor for kind in value})
    if isinstance(value, list):
        return [_outline(inner) for inner in value]
    if isinstance(value, bool) or key in _SIGNIFICANT_KEYS:
        return value
    return value == 0 if isinstance(value, int | float) else "text"


def multiply(stack: Stack, times: Mapping[str, int], settings: Settings) -> Stack:
    """Return the stack of ``settings``: the resources of each entry times the number it represents."""
    prefix = f"{_OURS}-{stack.name}-"
    longest_first = sorted(times, key=len, reverse=True)

    def multiplicity(resource: Declared) -> int:
        name = resource.name.removeprefix(prefix)
        return next((times[e] for e in longest_first if name == e or name.startswith(f"{e}-")), 1)

    declared = [resource for resource in stack.declared for _ in range(multiplicity(resource))]
    return replace(stack, declared=declared, settings=settings)


def lines(stack: Stack, file_system_gib: float, listed: Mapping[str, float] | None = None) -> Iterator[Line]:
    """Yield the fixed costs, as the preflight does, and costs that depend on the invocations of functions.

    ``file_system_gib`` is the data on EFS, ``listed`` as in the preflight.
    """
    yield from monthly_cost.lines(stack, listed)
    functions = [function.inputs for function in stack.declared if function.type == _FUNCTION]
    gib = sum(float(function.get("memorySize") or 128) / 1024 for function in functions)
    yield "function requests", len(functions) * _INVOCATIONS, prices.LAMBDA_REQUEST
    yield "function GiB-seconds", gib * _INVOCATIONS * _INVOCATION_SECONDS, prices.LAMBDA_GIB_SECOND
    custom_metrics = [
        function for function in stack.of_type(_ALARM) if str(function.get("namespace", "")).startswith(_OURS)
    ]
    yield "metrics that alarms read", len(custom_metrics), prices.METRIC_MONTH
    if stack.has("aws:efs/fileSystem:FileSystem"):
        yield "GiB on EFS", file_system_gib, prices.FILE_SYSTEM_GIB_MONTH


def not_counted(stack: Stack, listed: Mapping[str, float] | None = None) -> Iterator[str]:
    """Yield the costs that the lines omit, each with the reason."""
    if stack.region not in prices.SAME_PRICES:
        yield f"higher prices of {stack.region}; the other lines use prices of {prices.REGION}"
    brokers = sorted(str(inputs["hostInstanceType"]) for inputs in stack.of_type("aws:mq/broker:Broker"))
    if brokers:
        yield f"brokers {', '.join(brokers)}: not in public copies of the Amazon MQ price list"
    if stack.has("aws:sqs/queue:Queue"):
        yield "queue and table requests, logs, traffic, snapshots: depend on usage"
    for kind in monthly_cost.unpriced_nodes(stack, listed):
        yield f"system nodes {kind}: unknown price"
    yield from _kubernetes_not_counted(stack)


def _kubernetes_not_counted(stack: Stack) -> Iterator[str]:
    settings = stack.settings.on_kubernetes
    entries = (*settings.services, *settings.training)
    if settings.kubernetes is None or not entries:
        return
    standard, extended = prices.CLUSTER_HOUR * prices.HOURS, prices.CLUSTER_EXTENDED_HOUR * prices.HOURS
    if settings.kubernetes.create is None:
        yield (
            f"EKS cluster {settings.kubernetes.cluster}, which is not part of the stack: its control plane "
            f"(${standard:.0f}, in extended support ${extended:.0f}), nodes and add-ons"
        )
    for cluster in stack.of_type(_CLUSTER):
        version = str(cluster["version"])
        end = prices.STANDARD_SUPPORT_ENDS.get(version, "date unknown")
        yield (
            f"EKS extended support (${extended:.0f} instead of ${standard:.0f}): disabled for the cluster, "
            f"so AWS upgrades version {version} at the end of standard support ({end})"
        )
        yield "EKS: control plane logs, traffic through NAT gateways and between zones: depend on usage"
    if any(entry.datasets for entry in entries):
        yield "dataset volumes on Kubernetes: one per pod, with the size of the snapshot"
