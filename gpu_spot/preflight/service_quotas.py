"""Reads quotas from Service Quotas."""

from __future__ import annotations

from dataclasses import dataclass

from botocore.exceptions import ClientError

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota: its name, its value, and the console page for an increase."""

    name: str
    value: float
    page: str

    @property
    def request_advice(self) -> str:
        """The action to take; AWS needs hours to days for an increase."""
        return f"request an increase: {self.page}"

    def check(self, finding: str, required: float, maximum: float) -> CheckResult:
        """Compare the quota with the demand of the targets (``required``) and of the maximum sizes."""
        if self.value < required:
            return CheckResult(self.name, "failure", finding, self.request_advice)
        if self.value < maximum:
            return CheckResult(self.name, "warning", finding, self.request_advice)
        return CheckResult(self.name, "ok", finding)


def quota(account: Account, service: str, code: str) -> Quota:
    """Return the account's applied value, or AWS's default value.

    Source: ``GetServiceQuota``: "For some quotas, only the default values are available."
    """
    client = account.clients("service-quotas")
    try:
        response = client.get_service_quota(ServiceCode=service, QuotaCode=code)["Quota"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchResourceException":
            raise
        response = client.get_aws_default_service_quota(ServiceCode=service, QuotaCode=code)["Quota"]
    region = client.meta.region_name
    page = f"https://{region}.console.aws.amazon.com/servicequotas/home/services/{service}/quotas/{code}"
    return Quota(response["QuotaName"], response["Value"], page)
