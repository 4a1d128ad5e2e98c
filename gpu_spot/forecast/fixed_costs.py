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

from gpu_spot.declared.listing import Declared
from gpu_spot.declared.stackfile import StackConfig
from gpu_spot.forecast import control_plane
from gpu_spot.preflight import prices
from gpu_spot.preflight.checks import monthly_cost
from gpu_spot.preflight.prices import Line, listed, priced
from gpu_spot.preflight.stack import Stack
from infra.catalogue import accelerators, price_tables
from infra.schema import Settings
from infra.settings import PROJECT

_ENTRY_LISTS: Final = (f"{PROJECT}:services", f"{PROJECT}:training")
_SIGNIFICANT_KEYS: Final = (
    *("kind", "fleetType", "deployment", "engineVersion", "checkpoints", "instanceType"),
    *("runsOn", "count"),
)
"""Keys whose text determines the declared resources."""
_INVOCATIONS: Final = prices.HOURS * 60
"""Each function runs once a minute."""
_INVOCATION_SECONDS: Final = 1.0
"""Assumed duration of an invocation."""
_FUNCTION: Final = "aws:lambda/function:Function"
_FILE_SYSTEM: Final = "aws:efs/fileSystem:FileSystem"
_CLUSTER: Final = "aws:eks/cluster:Cluster"


def reduce_entries(config: StackConfig) -> tuple[StackConfig, dict[str, int]]:
    """Return the stack with one entry of each kind, and by entry the number of entries it represents.

    An entry whose name another one has in its queue is a kind of its own: without it the stack is invalid.
    """
    values, times = dict(config.values), dict[str, int]()
    for key in _ENTRY_LISTS:
        queues = [entry.get("queue") or {} for entry in values.get(key) or ()]
        named = {(queue.get("existing") or {}).get("brokerOf") for queue in queues}
        named |= {name for queue in queues for name in queue.get("calls") or ()}
        first: dict[str, Any] = {}
        counted = Counter[str]()
        for entry in values.get(key) or ():
            kind = str(entry["name"]) if entry["name"] in named else _kind(entry)
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
    longest_first = sorted(times, key=len, reverse=True)

    def multiplicity(resource: Declared) -> int:
        name = f"{resource.name}-"
        return next((times[entry] for entry in longest_first if name.startswith(f"{entry}-")), 1)

    declared = [resource for resource in stack.declared for _ in range(multiplicity(resource))]
    return replace(stack, declared=declared, settings=settings)


def lines(stack: Stack, file_system_gib: float) -> Iterator[Line]:
    """Yield the fixed costs, as the preflight does, and costs that depend on the invocations of functions.

    ``file_system_gib`` is the data on EFS.
    """
    yield from monthly_cost.lines(stack)
    functions = [function.inputs for function in stack.declared if function.type == _FUNCTION]
    gib = sum(float(function.get("memorySize") or 128) / 1024 for function in functions)
    seconds = gib * _INVOCATIONS * _INVOCATION_SECONDS
    yield listed("function requests", len(functions) * _INVOCATIONS, prices.LAMBDA_REQUEST, stack.region)
    yield listed("function GiB-seconds", seconds, prices.LAMBDA_GIB_SECOND, stack.region)
    yield from control_plane.lines(stack.settings, len(functions), stack.region)
    if stack.has(_FILE_SYSTEM):
        yield priced("GiB on EFS", file_system_gib, prices.of(price_tables.EFS_STANDARD, stack.region))
        mib = sum(files.get("provisionedThroughputInMibps") or 0 for files in stack.of_type(_FILE_SYSTEM))
        yield listed("MiB/s of EFS", mib, prices.EFS_MIB_MONTH, stack.region)


def not_counted(stack: Stack, file_system_gib: float) -> Iterator[str]:
    """Yield the costs that the lines omit, each with the reason."""
    if stack.has("aws:sqs/queue:Queue"):
        yield (
            "workers' own logs and requests, snapshots, objects in buckets, container images, and traffic, "
            "also through NAT gateways, endpoints and between zones: depend on usage"
        )
    if stack.has(_FILE_SYSTEM):
        if not file_system_gib:
            yield "data on EFS: --file-system-gib is 0"
        if any(files.get("throughputMode") == "elastic" for files in stack.of_type(_FILE_SYSTEM)):
            yield (
                f"reads and writes on EFS: ${prices.EFS_READ_GB:.2f} a GB read, ${prices.EFS_WRITE_GB:.2f} "
                f"written (a checkpoint of 10 GB ${10 * prices.EFS_WRITE_GB:.2f}); see throughputMib"
            )
    if stack.has("aws:mq/broker:Broker"):
        yield "storage of brokers: depends on usage"
    if stack.has("aws:lb/loadBalancer:LoadBalancer"):
        yield "load balancer capacity units (LCU): depend on connections, requests and bytes"
    settings = stack.settings
    if any(entry.datasets for entry in (*settings.on_instances.services, *settings.on_instances.training)):
        yield "dataset volumes: one per instance, with the size of the snapshot"
    if settings.builders:
        names = ", ".join(builder.entry.name for builder in settings.builders)
        yield f"preparation of datasets ({names}): an hour or two"
    if settings.tensorboard is not None:
        yield "TensorBoard's instance: runs only while gpu-spot tensorboard does"
    yield from _kubernetes_not_counted(stack)


def _kubernetes_not_counted(stack: Stack) -> Iterator[str]:
    settings = stack.settings.on_kubernetes
    entries = (*settings.services, *settings.training)
    if settings.kubernetes is None or not entries:
        return
    standard, extended = (
        _per_month(name, stack.region) for name in (price_tables.EKS_CLUSTER, price_tables.EKS_EXTENDED)
    )
    if settings.kubernetes.create is None:
        yield (
            f"EKS cluster {settings.kubernetes.cluster}, which is not part of the stack: its control plane "
            f"({standard}, in extended support {extended}), nodes and add-ons"
        )
    for cluster in stack.of_type(_CLUSTER):
        version = str(cluster["version"])
        end = prices.STANDARD_SUPPORT_ENDS.get(version, "date unknown")
        yield (
            f"EKS extended support ({extended} instead of {standard}): disabled for the cluster, "
            f"so AWS upgrades version {version} at the end of standard support ({end})"
        )
        yield "EKS: control plane logs: depend on usage"
    if any(entry.datasets for entry in entries):
        yield "dataset volumes on Kubernetes: one per pod, with the size of the snapshot"


def _per_month(name: str, region: str) -> str:
    price = prices.of(name, region)
    return "not priced" if price is None else f"${price.usd * prices.HOURS:.0f}"
