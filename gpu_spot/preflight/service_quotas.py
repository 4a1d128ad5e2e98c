"""What Service Quotas answers for one quota."""

from __future__ import annotations

from dataclasses import dataclass

from botocore.exceptions import ClientError

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.remark import Remark


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota: its name and value, and the page where more of it is asked for."""

    name: str
    value: float
    page: str

    @property
    def ask(self) -> str:
        """What to do for more: AWS takes hours to days."""
        return f"ask for more: {self.page}"

    def remark(self, told: str, least: float, most: float) -> Remark:
        """Return what to make of it: ``least`` is what the targets need, ``most`` what may be asked for."""
        if self.value < least:
            return Remark(self.name, "failure", told, self.ask)
        if self.value < most:
            return Remark(self.name, "warning", told, self.ask)
        return Remark(self.name, "ok", told)


def quota(account: Account, service: str, code: str) -> Quota:
    """Return the account's value, or AWS's default where nobody ever changed it.

    Source: ``GetServiceQuota``: "For some quotas, only the default values are available."
    """
    client = account.clients("service-quotas")
    try:
        found = client.get_service_quota(ServiceCode=service, QuotaCode=code)["Quota"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchResourceException":
            raise
        found = client.get_aws_default_service_quota(ServiceCode=service, QuotaCode=code)["Quota"]
    region = client.meta.region_name
    page = f"https://{region}.console.aws.amazon.com/servicequotas/home/services/{service}/quotas/{code}"
    return Quota(found["QuotaName"], found["Value"], page)
