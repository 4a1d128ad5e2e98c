"""AWS services of the declared resources that the region does not have.

Source: Systems Manager guide, "Calling AWS service, Region, endpoint, Availability Zone, local zone, and
wavelength zone public parameters": a parameter for each service of a region.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.stack import Stack

NAME: Final = "services in the region"

_PATH: Final = "/aws/service/global-infrastructure/regions/{region}/services"
_NAMES: Final = {
    "cloudwatch/eventRule:EventRule": "events",
    "cloudwatch/eventTarget:EventTarget": "events",
    "cloudwatch/logGroup:LogGroup": "logs",
    "cloudwatch/logMetricFilter:LogMetricFilter": "logs",
}
"""Services of types whose module in the provider has another name."""
_GLOBAL: Final = ("budgets", "iam")
_PART_OF: Final = {"lb": "elb", "vpc": "ec2"}
_KEYS: Final = {
    "efs": "storage.fileSystem",
    "eks": "kubernetes.create",
    "elb": "services[].http",
    "fis": "services[].capacity.drill",
    "mq": "services[].queue",
    "rolesanywhere": "services[].onPremises",
}
"""The stack file's keys without which a service is not needed."""


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Yield the services that the stack needs and the region does not have."""
    needed = {service_of(resource.type) for resource in stack.declared if resource.type.startswith("aws:")}
    needed.difference_update(_GLOBAL)
    pages = (
        account.clients("ssm")
        .get_paginator("get_parameters_by_path")
        .paginate(Path=_PATH.format(region=stack.region))
    )
    available = {parameter["Value"] for page in pages for parameter in page["Parameters"]}
    if not available:
        yield CheckResult(stack.region, "not known", "AWS lists no services of this region")
        return
    for service in sorted(needed - available):
        finding = f"not available in {stack.region}"
        key = _KEYS.get(service, "")
        yield CheckResult(service, "failure", finding, "remove the key" if key else "use another region", key)
    yield CheckResult(stack.region, "ok", f"{len(needed & available)} of {len(needed)} services available")


def service_of(type_: str) -> str:
    """Return the service of a Pulumi type of AWS, by its name among the public parameters."""
    token = type_.removeprefix("aws:")
    module = token.partition("/")[0]
    return _NAMES.get(token, _PART_OF.get(module, module))
