"""Fixed names that may already exist.

Names that Pulumi generates end in seven random digits and cannot collide.
"""

from __future__ import annotations

from collections.abc import Iterator

from contracts import names
from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.stack import Stack


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Look for existing parameters and log groups with declared names, and check their stack tag."""
    parameters = [inputs["name"] for inputs in stack.of_type("aws:ssm/parameter:Parameter")]
    groups = [
        inputs["name"] for inputs in stack.of_type("aws:cloudwatch/logGroup:LogGroup") if inputs.get("name")
    ]
    owned = 0
    for name, tags in (*_parameters(stack, account, parameters), *_log_groups(stack, account, groups)):
        if tags.get(names.TAG_STACK) == stack.name:
            owned += 1
        else:
            finding, advice = "exists without this stack's tag: `up` cannot create it", "delete or import it"
            yield CheckResult(name, "failure", finding, f"{advice}, or rename the stack")
    subject = f"stack {stack.name}"
    if owned:
        finding = f"{owned} fixed names exist with its tag: it is deployed, or another state owns them"
        yield CheckResult(subject, "warning", finding, "continue if `pulumi stack` lists its resources")
    else:
        finding = f"{len(parameters) + len(groups)} fixed names are available"
        yield CheckResult(subject, "ok", finding)


def _parameters(stack: Stack, account: Account, declared: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    ssm = account.clients("ssm")
    pages = ssm.get_paginator("get_parameters_by_path").paginate(
        Path=f"/gpu-spot/{stack.name}", Recursive=True
    )
    for name in sorted({p["Name"] for page in pages for p in page["Parameters"]}.intersection(declared)):
        tags = ssm.list_tags_for_resource(ResourceType="Parameter", ResourceId=name)["TagList"]
        yield name, {tag["Key"]: tag["Value"] for tag in tags}


def _log_groups(stack: Stack, account: Account, declared: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    logs = account.clients("logs")
    pages = logs.get_paginator("describe_log_groups").paginate(logGroupNamePrefix=f"/gpu-spot/{stack.name}/")
    for group in (group for page in pages for group in page["logGroups"]):
        if group["logGroupName"] in declared:
            arn = group["arn"].removesuffix(":*")
            yield group["logGroupName"], logs.list_tags_for_resource(resourceArn=arn)["tags"]
