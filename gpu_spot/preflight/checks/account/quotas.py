"""The vCPUs that the account may run, against what the groups may ask for.

Source: EC2 user guide, "Spot Instance quotas" and "On-Demand Instance quotas" (counted in vCPUs of what runs
or is asked for; a new account has 0 for accelerators), codes as Service Quotas lists them. P6 stands in no
table of the guide; that it shares P5's spot quota is from another project's table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from contracts.group.on_demand_share import on_demand_share
from gpu_spot.preflight.account import Account
from gpu_spot.preflight.remark import Remark
from gpu_spot.preflight.service_quotas import Quota, quota
from gpu_spot.preflight.stack import Stack
from infra.schema import Capacity

NAME: Final = "quotas of vCPUs"

_CODES: Final = (
    (re.compile(r"(g|gr|vt)\d"), "L-3819A6DF", "L-DB2E81BA"),
    (re.compile(r"p[234]"), "L-7212CCBC", "L-417A185B"),
    (re.compile(r"p[56]"), "L-C4BD4855", "L-417A185B"),
    (re.compile(r"trn\d"), "L-6B0D517C", "L-2C3B7624"),
    (re.compile(r"f\d"), "L-88CF9481", "L-74FC7D96"),
    (re.compile(r"[cmrt]\d"), "L-34B43A08", "L-1216C47A"),
)
"""Families, and the codes of their quotas: spot, on-demand."""


@dataclass(slots=True)
class _Wanted:
    """vCPUs of one quota: the least that reaches the targets, the most that the groups' ``max`` allows."""

    least: int = 0
    most: int = 0


def look(stack: Stack, account: Account) -> Iterator[Remark]:
    """Compare each quota that a group touches with what all groups together need of it."""
    capacities = stack.settings.capacities.values()
    vcpus = _vcpus(account.clients("ec2"), {name for capacity in capacities for name in capacity.types})
    for code, wanted in _wanted(capacities, vcpus).items():
        if wanted.most:
            yield _judged(quota(account, "ec2", code), wanted)


def _vcpus(ec2: Any, types: Iterable[str]) -> dict[str, int]:
    """Return vCPUs by type; a type that the region does not have is left out (``offerings`` tells it)."""
    # A filter, because the parameter InstanceTypes refuses the whole list for one unknown type.
    pages = ec2.get_paginator("describe_instance_types").paginate(
        Filters=[{"Name": "instance-type", "Values": sorted(types)}]
    )
    return {
        one["InstanceType"]: one["VCpuInfo"]["DefaultVCpus"]
        for page in pages
        for one in page["InstanceTypes"]
    }


def _wanted(capacities: Iterable[Capacity], vcpus: Mapping[str, int]) -> dict[str, _Wanted]:
    wanted: dict[str, _Wanted] = {}
    for capacity in capacities:
        by_codes: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for name in capacity.types:
            if name in vcpus:
                by_codes.setdefault(_codes(name), []).append((vcpus[name], capacity.weights[name]))
        for codes, sizes in by_codes.items():
            for code, least, most in zip(codes, _least(capacity), _most(capacity), strict=True):
                here = wanted.setdefault(code, _Wanted())
                here.most += max(-(-most // weight) * size for size, weight in sizes)
                # With types of several quotas the target can be reached without this one.
                if len(by_codes) == 1:
                    here.least += min(-(-least // weight) * size for size, weight in sizes)
    return wanted


def _codes(name: str) -> tuple[str, str]:
    return next((spot, on_demand) for family, spot, on_demand in _CODES if family.match(name))


def _least(capacity: Capacity) -> tuple[int, int]:
    """What the target counts: spot; on-demand with a fallback that stands in for all of it."""
    on_demand = on_demand_share(capacity.target, capacity.on_demand_base, capacity.spot_percentage)
    return capacity.target - on_demand, capacity.target if capacity.fallback.enabled else on_demand


def _most(capacity: Capacity) -> tuple[int, int]:
    spot, on_demand = _least(capacity)
    return capacity.maximum if spot else 0, capacity.maximum if on_demand else 0


def _judged(found: Quota, wanted: _Wanted) -> Remark:
    told = f"{found.value:.0f} vCPUs; the targets need {wanted.least}, the groups' max up to {wanted.most}"
    return found.remark(told, wanted.least, wanted.most)
