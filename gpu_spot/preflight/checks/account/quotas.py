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
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from contracts.group.on_demand_share import on_demand_share
from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.service_quotas import Quota, quota
from gpu_spot.preflight.stack import Stack
from infra.schema import Capacity

NAME: Final = "vCPU quotas"

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


@dataclass(slots=True)
class _VcpuRequirement:
    """vCPUs of a quota: the minimum that reaches the targets, the maximum that ``max`` allows."""

    target_vcpus: int = 0
    max_vcpus: int = 0


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Compare each affected quota with the requirement of all groups together."""
    capacities = stack.capacities.values()
    types = {name for capacity in capacities for name in capacity.types} | _further_types(stack).keys()
    vcpus = _vcpus(account.clients("ec2"), types)
    for name in sorted(name for name in vcpus if codes(name) is None):
        yield CheckResult(name, "not known", "its quota is not in the list of this check")
    for code, requirement in _requirements(stack, vcpus).items():
        if requirement.max_vcpus:
            yield _compare(quota(account, "ec2", code), requirement)


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


def _requirements(stack: Stack, vcpus: Mapping[str, int]) -> dict[str, _VcpuRequirement]:
    requirements = defaultdict[str, _VcpuRequirement](_VcpuRequirement)
    for capacity in stack.capacities.values():
        _add_capacity(requirements, capacity, vcpus)
    for name, count in _further_types(stack).items():
        if name in vcpus and (of_type := codes(name)) is not None:
            requirement = requirements[of_type[1]]
            requirement.target_vcpus += count * vcpus[name]
            requirement.max_vcpus += count * vcpus[name]
    return requirements


def _add_capacity(
    requirements: defaultdict[str, _VcpuRequirement], capacity: Capacity, vcpus: Mapping[str, int]
) -> None:
    by_codes: dict[_Codes, list[tuple[int, int]]] = {}
    for name in capacity.types:
        if name in vcpus and (of_type := codes(name)) is not None:
            by_codes.setdefault(of_type, []).append((vcpus[name], capacity.weights[name]))
    (target_spot, target_on_demand), (max_spot, max_on_demand) = (
        _target_slots(capacity),
        _max_slots(capacity),
    )
    for (spot_codes, on_demand_code), sizes in by_codes.items():
        slots = dict.fromkeys(spot_codes, (target_spot, max_spot))
        for code, (target_slots, max_slots) in (
            *slots.items(),
            (on_demand_code, (target_on_demand, max_on_demand)),
        ):
            requirement = requirements[code]
            requirement.max_vcpus += max(-(-max_slots // weight) * size for size, weight in sizes)
            # With types of several quotas the target can be reached without this quota.
            if len(by_codes) == 1:
                requirement.target_vcpus += min(-(-target_slots // weight) * size for size, weight in sizes)


def codes(name: str) -> _Codes | None:
    """Return the codes of a type's quotas; None if no row has its family."""
    return next((row for family, row in _CODES if family.match(name)), None)


def _target_slots(capacity: Capacity) -> tuple[int, int]:
    """Return the slots of the target: Spot, and On-Demand with a fallback for the whole target."""
    on_demand = on_demand_share(capacity.target, capacity.on_demand_base, capacity.spot_percentage)
    return capacity.target - on_demand, capacity.target if capacity.fallback.enabled else on_demand


def _max_slots(capacity: Capacity) -> tuple[int, int]:
    spot, on_demand = _target_slots(capacity)
    return capacity.maximum if spot else 0, capacity.maximum if on_demand else 0


def _compare(vcpu_quota: Quota, requirement: _VcpuRequirement) -> CheckResult:
    finding = (
        f"{vcpu_quota.value:.0f} vCPUs; targets need {requirement.target_vcpus}, maximum sizes up to "
        f"{requirement.max_vcpus}"
    )
    return vcpu_quota.check(finding, requirement.target_vcpus, requirement.max_vcpus)
