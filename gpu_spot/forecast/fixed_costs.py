"""What a stack costs beside its instances: what the program declares for it, priced.

Entries that are alike declare alike resources. The program runs with one of each kind, and what it declares
for that one counts as often as there are such entries.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from gpu_spot.preflight import prices
from gpu_spot.preflight.checks import money
from gpu_spot.preflight.stack import Declared, Stack
from infra.catalogue import accelerators
from infra.schema import Settings
from infra.settings import PROJECT
from pulumi_declared.stackfile import StackConfig

_LISTS: Final = (f"{PROJECT}:services", f"{PROJECT}:training")
_TELLING: Final = (
    *("kind", "fleetType", "deployment", "engineVersion", "checkpoints", "instanceType"),
    "runsOn",
)
"""Keys whose text decides what is declared."""
_LOOKS: Final = prices.HOURS * 60
"""Each function is woken once a minute."""
_LOOK_SECONDS: Final = 1.0
"""For so long a look runs: assumed."""
_FUNCTION: Final = "aws:lambda/function:Function"
_ALARM: Final = "aws:cloudwatch/metricAlarm:MetricAlarm"
_CLUSTER: Final = "aws:eks/cluster:Cluster"
_OURS: Final = "gpu-spot"

Line = tuple[str, float, float]
"""What, how much of it, and US dollars a month for one."""


def reduced(config: StackConfig) -> tuple[StackConfig, dict[str, int]]:
    """Return the stack with one entry of each kind, and how often each entry kept stands for one."""
    values, times = dict(config.values), dict[str, int]()
    for key in _LISTS:
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
    """Return what stack files have in common that declare alike: all but what differs within a kind."""
    values = dict(config.values)
    for key in _LISTS:
        values[key] = [(entry["name"], _kind(entry)) for entry in values.get(key) or ()]
    return json.dumps([config.stack, values], sort_keys=True, default=str)


def _kind(entry: Mapping[str, Any]) -> str:
    """Return what entries have in common that declare alike; a matrix is like no other."""
    return json.dumps(entry if "matrix" in entry else _outline(entry), sort_keys=True, default=str)


def _outline(value: Any, key: str = "") -> Any:
    if isinstance(value, Mapping):
        return {name: _outline(inner, str(name)) for name, inner in value.items()}
    if key == "instanceTypes":
        return sorted({accelerators.lookup(str(kind)).family.vendor for kind in value})
    if isinstance(value, list):
        return [_outline(inner) for inner in value]
    if isinstance(value, bool) or key in _TELLING:
        return value
    return value == 0 if isinstance(value, int | float) else "text"


def multiplied(stack: Stack, times: Mapping[str, int], settings: Settings) -> Stack:
    """Return the whole stack of ``settings``: the resources of each entry as often as it stands for one."""
    prefix = f"{_OURS}-{stack.name}-"
    longest_first = sorted(times, key=len, reverse=True)

    def count(one: Declared) -> int:
        name = one.name.removeprefix(prefix)
        return next((times[e] for e in longest_first if name == e or name.startswith(f"{e}-")), 1)

    declared = [one for one in stack.declared for _ in range(count(one))]
    return replace(stack, declared=declared, settings=settings)


def lines(stack: Stack, file_system_gib: float, listed: Mapping[str, float] | None = None) -> Iterator[Line]:
    """Yield what is paid all the time, as the preflight does, and what follows from how it is used.

    ``file_system_gib`` is what lies on EFS, ``listed`` as in the preflight.
    """
    yield from money.lines(stack, listed)
    functions = [one.inputs for one in stack.declared if one.type == _FUNCTION]
    gib = sum(float(one.get("memorySize") or 128) / 1024 for one in functions)
    yield "function requests", len(functions) * _LOOKS, prices.LAMBDA_REQUEST
    yield "function GiB-seconds", gib * _LOOKS * _LOOK_SECONDS, prices.LAMBDA_GIB_SECOND
    own = [one for one in stack.of_type(_ALARM) if str(one.get("namespace", "")).startswith(_OURS)]
    yield "metrics that alarms read", len(own), prices.METRIC_MONTH
    if stack.has("aws:efs/fileSystem:FileSystem"):
        yield "GiB on EFS", file_system_gib, prices.FILE_SYSTEM_GIB_MONTH


def not_counted(stack: Stack, listed: Mapping[str, float] | None = None) -> Iterator[str]:
    """Yield what is in no line, or not as it should be, and why."""
    if stack.region not in prices.SAME_PRICES:
        yield f"what {stack.region} asks more than {prices.REGION}, whose prices the other lines have"
    brokers = sorted(str(one["hostInstanceType"]) for one in stack.of_type("aws:mq/broker:Broker"))
    if brokers:
        yield f"brokers {', '.join(brokers)}: no public copy of Amazon MQ's price list has them"
    if stack.has("aws:sqs/queue:Queue"):
        yield "requests of queues and tables, logs, traffic, snapshots: by use"
    for kind in money.unpriced_nodes(stack, listed):
        yield f"system nodes {kind}: no price is known"
    yield from _of_kubernetes(stack)


def _of_kubernetes(stack: Stack) -> Iterator[str]:
    there = stack.settings.on_kubernetes
    entries = (*there.services, *there.training)
    if there.kubernetes is None or not entries:
        return
    standard, extended = prices.CLUSTER_HOUR * prices.HOURS, prices.CLUSTER_EXTENDED_HOUR * prices.HOURS
    if there.kubernetes.own is None:
        yield (
            f"EKS cluster {there.kubernetes.cluster}, which is not the stack's: its control plane "
            f"(${standard:.0f}, past standard support ${extended:.0f}), its own nodes and engines"
        )
    for one in stack.of_type(_CLUSTER):
        version = str(one["version"])
        end = prices.STANDARD_SUPPORT_ENDS.get(version, "no date is known")
        yield (
            f"EKS's extended support (${extended:.0f} in place of ${standard:.0f}): the cluster declines it, "
            f"so AWS upgrades version {version} once standard support ends ({end})"
        )
        yield "EKS: the control plane's logs, traffic through NAT gateways and between zones: by use"
    if any(entry.datasets for entry in entries):
        yield "volumes of datasets on Kubernetes: one for each pod, as large as the snapshot"
