"""Regional quotas of gp3 storage and network interfaces.

Source: EBS user guide, "Quotas for Amazon EBS" (storage of all gp3 volumes, in TiB); VPC user guide, "Amazon
VPC quotas" (network interfaces per region); codes from public listings of Service Quotas.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.service_quotas import Quota, quota
from gpu_spot.preflight.stack import Stack
from infra.schema import Capacity

NAME: Final = "storage and interface quotas"

_STORAGE: Final = ("ebs", "L-7A658B76")
_INTERFACES: Final = ("vpc", "L-DF5E4CA3")
_GIB_OF_TIB: Final = 1024


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Compare the quotas with all groups at their targets and at ``max``.

    Other resources of the account are not counted. An instance has one interface and a root volume; a job and
    a tenant have one volume each.
    """
    sizes = [(_counts(capacity), capacity.root_volume_gib) for capacity in stack.capacities.values()]
    volumes = _volumes(stack)
    gib = [volumes + sum(counts[at] * root for counts, root in sizes) for at in (0, 1)]
    yield _compare(quota(account, *_STORAGE), "TiB", gib[0] / _GIB_OF_TIB, gib[1] / _GIB_OF_TIB)
    required, maximum = (sum(counts[at] for counts, _ in sizes) for at in (0, 1))
    yield _compare(quota(account, *_INTERFACES), "interfaces", required, maximum)


def _counts(capacity: Capacity) -> tuple[int, int]:
    """Return the instances at the target, of the largest type, and at ``max``, of the smallest."""
    weights = capacity.weights.values()
    return -(-capacity.target // max(weights)), -(-capacity.maximum // min(weights))


def _volumes(stack: Stack) -> int:
    """Return the GiB of all volumes except root volumes."""
    jobs = sum(job.volume_gib or 0 for job in stack.settings.jobs)
    return jobs + sum(tenant.data_gib for host in stack.settings.shared_hosts for tenant in host.tenants)


def _compare(resource_quota: Quota, unit: str, required: float, maximum: float) -> CheckResult:
    finding = (
        f"{resource_quota.value:,.0f} {unit}; targets need {required:,.4g}, "
        f"maximum sizes up to {maximum:,.4g}"
    )
    return resource_quota.check(finding, required, maximum)
