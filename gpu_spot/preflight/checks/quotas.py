"""Quotas from Service Quotas: gp3 storage, network interfaces; and groups beyond the tested size.

Source: ``GetServiceQuota``: "For some quotas, only the default values are available."; EBS user guide,
"Quotas for Amazon EBS" (storage of all gp3 volumes, in TiB); VPC user guide, "Amazon VPC quotas" (network
interfaces per region); codes from public listings of Service Quotas.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from botocore.exceptions import ClientError

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult, error_code
from gpu_spot.preflight.stack import Stack
from infra.schema import Capacity

MAX_SLOTS: Final = 5_000
"""Recommended limit of ``capacity.max``: about half of what the group's memory and registry items allow."""

_STORAGE: Final = ("ebs", "L-7A658B76")
_INTERFACES: Final = ("vpc", "L-DF5E4CA3")
_GIB_OF_TIB: Final = 1024


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota: its name, its value, and the console page for an increase."""

    name: str
    value: float
    page: str

    def check(self, unit: str, required: float, maximum: float) -> CheckResult:
        """Compare the quota with the demand of the targets (``required``) and of the maximum sizes."""
        finding = (
            f"{self.value:,.0f} {unit}; targets need {required:,.4g}, maximum sizes up to {maximum:,.4g}"
        )
        advice = f"request an increase: {self.page}"  # AWS needs hours to days
        if self.value < required:
            return CheckResult(self.name, "failure", finding, advice)
        if self.value < maximum:
            return CheckResult(self.name, "warning", finding, advice)
        return CheckResult(self.name, "ok", finding)


def quota(account: Account, service: str, code: str) -> Quota:
    """Return the account's applied value, or AWS's default value."""
    client = account.clients("service-quotas")
    try:
        response = client.get_service_quota(ServiceCode=service, QuotaCode=code)["Quota"]
    except ClientError as error:
        if error_code(error) != "NoSuchResourceException":
            raise
        response = client.get_aws_default_service_quota(ServiceCode=service, QuotaCode=code)["Quota"]
    region = client.meta.region_name
    page = f"https://{region}.console.aws.amazon.com/servicequotas/home/services/{service}/quotas/{code}"
    return Quota(response["QuotaName"], response["Value"], page)


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Compare storage and interfaces with all groups at their targets and at ``max``.

    Other resources of the account are not counted. An instance has one interface and a root volume; a job and
    a tenant have one volume each.
    """
    sizes = [(_counts(capacity), capacity.root_volume_gib) for capacity in stack.capacities.values()]
    volumes = sum(job.volume_gib or 0 for job in stack.settings.jobs)
    volumes += sum(tenant.data_gib for host in stack.settings.shared_hosts for tenant in host.tenants)
    tib = [(volumes + sum(counts[at] * root for counts, root in sizes)) / _GIB_OF_TIB for at in (0, 1)]
    yield quota(account, *_STORAGE).check("TiB", *tib)
    interfaces = (sum(counts[at] for counts, _ in sizes) for at in (0, 1))
    yield quota(account, *_INTERFACES).check("interfaces", *interfaces)


def _counts(capacity: Capacity) -> tuple[int, int]:
    """Return the instances at the target, of the largest type, and at ``max``, of the smallest."""
    weights = capacity.weights.values()
    return -(-capacity.target // max(weights)), -(-capacity.maximum // min(weights))


def sizes(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Yield groups that may grow beyond the tested limits (research/scale.md) or cost; makes no AWS calls."""
    for group, capacity in stack.settings.capacities.items():
        if capacity.maximum > MAX_SLOTS:
            finding = (
                f"max is {capacity.maximum:,}: heartbeats share one DynamoDB partition, the state is one item"
            )
            advice = f"split the group: at most {MAX_SLOTS:,} slots per group (research/scale.md)"
            yield CheckResult(group, "warning", finding, advice, stack.key(group, "capacity.max"))
        if capacity.max_price is not None and capacity.fallback.enabled:
            finding = f"maxPrice {capacity.max_price} bounds Spot alone; above it the fallback buys On-Demand"
            advice = "set fallback.enabled to false to pay no more, or leave maxPrice out"
            yield CheckResult(group, "warning", finding, advice, stack.key(group, "capacity.maxPrice"))
