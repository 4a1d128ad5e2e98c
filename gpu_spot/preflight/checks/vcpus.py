"""vCPU quotas of the account, compared with the groups' targets and maximum sizes.

Source: EC2 user guide, "Spot Instance quotas" and "On-Demand Instance quotas" (in vCPUs of running or
requested instances; a new account has 0 for accelerators); codes from public listings of Service Quotas. The
guide's tables do not list P6, and listings differ in its Spot quota, P5's or that of P4 and older: both are
checked.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from contracts.group.warm_pool import on_demand_share
from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.checks.quotas import Quota, quota
from gpu_spot.preflight.stack import Stack
from infra.schema import Capacity

_Codes: TypeAlias = tuple[tuple[str, ...], str]
_CODES: Final[tuple[tuple[re.Pattern[str], _Codes], ...]] = (
    (re.compile(r"(g|gr|vt)\d"), (("L-3819A6DF",), "L-DB2E81BA")),
    (re.compile(r"p[234]"), (("L-7212CCBC",), "L-417A185B")),
    (re.compile(r"p5"), (("L-C4BD4855",), "L-417A185B")),
    (re.compile(r"p6"), (("L-C4BD4855", "L-7212CCBC"), "L-417A185B")),
    (re.compile(r"inf\d"), (("L-B5D1601B",), "L-1945791B")),
    (re.compile(r"trn\d"), (("L-6B0D517C",), "L-2C3B7624")),
    (re.compile(r"dl\d"), (("L-85EED4F7",), "L-6E869C2A")),
    (re.compile(r"f\d"), (("L-88CF9481",), "L-74FC7D96")),
    (re.compile(r"[acdhimrtz]\d"), (("L-34B43A08",), "L-1216C47A")),
)
"""Instance families, and the codes of their quotas: Spot, On-Demand."""


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Compare each affected quota with all groups together, and all quotas of a group with one instance."""
    capacities, quotas = stack.capacities, dict[str, Quota]()
    types = {kind for capacity in capacities.values() for kind in capacity.types}
    vcpus = _vcpus(account.clients("ec2"), types | _further_types(stack).keys())
    for name in sorted(name for name in vcpus if codes(name) is None):
        yield CheckResult(name, "not known", "its quota is not in the list of this check")
    for code, (required, maximum) in _requirements(stack, vcpus).items():
        if maximum:
            quotas[code] = quota(account, "ec2", code)
            yield quotas[code].check("vCPUs", required, maximum)
    for group, capacity in capacities.items():
        rows = [(vcpus[kind], row) for kind in capacity.types if kind in vcpus and (row := codes(kind))]
        sizes = [(quotas[code], size) for size, row in rows for code in (*row[0], row[1]) if code in quotas]
        if capacity.target and sizes and all(limit.value < size for limit, size in sizes):
            finding, advice = "no quota of its types has room for one", "request an increase of one of them"
            yield CheckResult(group, "failure", finding, advice, stack.key(group, "capacity.instanceTypes"))


def _further_types(stack: Stack) -> Mapping[str, int]:
    """Return the number of a cluster's system nodes and of proxies by type; both are On-Demand."""
    counts = stack.proxies
    for inputs in stack.of_type("aws:eks/nodeGroup:NodeGroup"):
        for name in inputs["instanceTypes"]:
            counts[name] += int(inputs["scalingConfig"]["desiredSize"])
    return counts


def _vcpus(ec2: Any, types: Iterable[str]) -> dict[str, int]:
    """Return vCPUs by type; types that the region does not offer are skipped (see ``offerings``)."""
    # The parameter InstanceTypes rejects the whole list if one type is unknown; a filter does not.
    pages = ec2.get_paginator("describe_instance_types").paginate(
        Filters=[{"Name": "instance-type", "Values": sorted(types)}]
    )
    return {
        info["InstanceType"]: info["VCpuInfo"]["DefaultVCpus"]
        for page in pages
        for info in page["InstanceTypes"]
    }


def _requirements(stack: Stack, vcpus: Mapping[str, int]) -> dict[str, list[int]]:
    """Return vCPUs by quota: the minimum that reaches the targets, the maximum that ``max`` allows."""
    requirements = defaultdict[str, list[int]](lambda: [0, 0])
    for capacity in stack.capacities.values():
        _add_capacity(requirements, capacity, vcpus)
    for name, count in _further_types(stack).items():
        if name in vcpus and (of_type := codes(name)) is not None:
            requirement = requirements[of_type[1]]
            requirement[:] = (vcpu + count * vcpus[name] for vcpu in requirement)
    return requirements


def _add_capacity(
    requirements: defaultdict[str, list[int]], capacity: Capacity, vcpus: Mapping[str, int]
) -> None:
    by_codes: dict[_Codes, list[tuple[int, int]]] = {}
    for name in capacity.types:
        if name in vcpus and (of_type := codes(name)) is not None:
            by_codes.setdefault(of_type, []).append((vcpus[name], capacity.weights[name]))
    spot, on_demand = _target_slots(capacity)
    for (spot_codes, on_demand_code), sizes in by_codes.items():
        for code, slots in (*((code, spot) for code in spot_codes), (on_demand_code, on_demand)):
            limit = capacity.maximum if slots else 0
            requirements[code][1] += max(-(-limit // weight) * size for size, weight in sizes)
            # With types of several quotas the target can be reached without this quota.
            if len(by_codes) == 1:
                requirements[code][0] += min(-(-slots // weight) * size for size, weight in sizes)


def codes(name: str) -> _Codes | None:
    """Return the codes of a type's quotas; None if no row has its family."""
    return next((row for family, row in _CODES if family.match(name)), None)


def _target_slots(capacity: Capacity) -> tuple[int, int]:
    """Return the slots of the target: Spot, and On-Demand with a fallback for the whole target."""
    on_demand = on_demand_share(capacity.target, capacity.on_demand_base, capacity.spot_percentage)
    return capacity.target - on_demand, capacity.target if capacity.fallback.enabled else on_demand
