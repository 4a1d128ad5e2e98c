"""What instances take of a region beside vCPUs: gp3 storage, and network interfaces.

Source: EBS user guide, "Quotas for Amazon EBS" (storage of all gp3 volumes, in TiB); VPC user guide, "Amazon
VPC quotas" (network interfaces a region); codes as public listings of Service Quotas have them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.remark import Remark
from gpu_spot.preflight.service_quotas import Quota, quota
from gpu_spot.preflight.stack import Stack
from infra.schema import Capacity

NAME: Final = "quotas of disks and interfaces"

_STORAGE: Final = ("ebs", "L-7A658B76")
_INTERFACES: Final = ("vpc", "L-DF5E4CA3")
_GIB_OF_TIB: Final = 1024


def look(stack: Stack, account: Account) -> Iterator[Remark]:
    """Compare what all groups take at their targets and at their ``max``; what else is there is not counted.

    An instance has one interface and its root volume; a job's and a tenant's volume is there once.
    """
    sizes = [(_counts(one), one.root_volume_gib) for one in stack.settings.capacities.values()]
    volumes = _volumes(stack)
    gib = [volumes + sum(counts[at] * root for counts, root in sizes) for at in (0, 1)]
    yield _judged(quota(account, *_STORAGE), "TiB", gib[0] / _GIB_OF_TIB, gib[1] / _GIB_OF_TIB)
    least, most = (sum(counts[at] for counts, _ in sizes) for at in (0, 1))
    yield _judged(quota(account, *_INTERFACES), "interfaces", least, most)


def _counts(capacity: Capacity) -> tuple[int, int]:
    """Return how many instances reach the target, of the largest type, and the most, of the smallest."""
    weights = capacity.weights.values()
    return -(-capacity.target // max(weights)), -(-capacity.maximum // min(weights))


def _volumes(stack: Stack) -> int:
    """Return the GiB of volumes beside those of the roots."""
    jobs = sum(job.volume_gib or 0 for job in stack.settings.jobs)
    return jobs + sum(tenant.data_gib for host in stack.settings.shared_hosts for tenant in host.tenants)


def _judged(found: Quota, unit: str, least: float, most: float) -> Remark:
    told = f"{found.value:,.0f} {unit}; the targets need {least:,.4g}, the groups' max up to {most:,.4g}"
    return found.remark(told, least, most)
