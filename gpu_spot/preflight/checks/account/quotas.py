"""vCPU quotas of the account, compared with the groups' targets and maximum sizes.

Source: EC2 user guide, "Spot Instance quotas" and "On-Demand Instance quotas" (in vCPUs of running or
requested instances; a new account has 0 for accelerators); codes as listed by Service Quotas. The guide's
tables do not list P6; that it shares P5's Spot quota is from another project's table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from contracts.group.on_demand_share import on_demand_share
from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.service_quotas import Quota, quota
from gpu_spot.preflight.stack import Stack
from infra.schema import Capacity

NAME: Final = "vCPU quotas"

_CODES: Final = (
    (re.compile(r"(g|gr|vt)\d"), "L-3819A6DF", "L-DB2E81BA"),
    (re.compile(r"p[234]"), "L-7212CCBC", "L-417A185B"),
    (re.compile(r"p[56]"), "L-C4BD4855", "L-417A185B"),
    (re.compile(r"trn\d"), "L-6B0D517C", "L-2C3B7624"),
    (re.compile(r"f\d"), "L-88CF9481", "L-74FC7D96"),
    (re.compile(r"[cmrt]\d"), "L-34B43A08", "L-1216C47A"),
)
"""Instance families, and the codes of their quotas: Spot, On-Demand."""


@dataclass(slots=True)
class _VcpuRequirement:
    """vCPUs of a quota: the minimum that reaches the targets, the maximum that ``max`` allows."""

    target_vcpus: int = 0
    max_vcpus: int = 0


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Compare each affected quota with the requirement of all groups together."""
    capacities = stack.settings.capacities.values()
    vcpus = _vcpus(account.clients("ec2"), {name for capacity in capacities for name in capacity.types})
    for code, requirement in _requirements(capacities, vcpus).items():
        if requirement.max_vcpus:
            yield _compare(quota(account, "ec2", code), requirement)


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


def _requirements(capacities: Iterable[Capacity], vcpus: Mapping[str, int]) -> dict[str, _VcpuRequirement]:
    requirements: dict[str, _VcpuRequirement] = {}
    for capacity in capacities:
        by_codes: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for name in capacity.types:
            if name in vcpus:
                by_codes.setdefault(_codes(name), []).append((vcpus[name], capacity.weights[name]))
        for codes, sizes in by_codes.items():
            for code, target_slots, max_slots in zip(
                codes, _target_slots(capacity), _max_slots(capacity), strict=True
            ):
                requirement = requirements.setdefault(code, _VcpuRequirement())
                requirement.max_vcpus += max(-(-max_slots // weight) * size for size, weight in sizes)
                # With types of several quotas the target can be reached without this quota.
                if len(by_codes) == 1:
                    requirement.target_vcpus += min(
                        -(-target_slots // weight) * size for size, weight in sizes
                    )
    return requirements


def _codes(name: str) -> tuple[str, str]:
    return next((spot, on_demand) for family, spot, on_demand in _CODES if family.match(name))


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
