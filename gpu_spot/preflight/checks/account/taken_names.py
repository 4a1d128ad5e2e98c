"""Names that the program fixes, and that something else may have already.

What Pulumi names itself ends in seven random digits and cannot collide.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from contracts import names
from gpu_spot.preflight.account import Account
from gpu_spot.preflight.remark import Remark
from gpu_spot.preflight.stack import Stack

NAME: Final = "names"


def look(stack: Stack, account: Account) -> Iterator[Remark]:
    """Look for parameters and log groups of the same name, and whose they are."""
    parameters = [one["name"] for one in stack.of_type("aws:ssm/parameter:Parameter")]
    groups = [one["name"] for one in stack.of_type("aws:cloudwatch/logGroup:LogGroup") if one.get("name")]
    own = 0
    for name, tags in (*_parameters(stack, account, parameters), *_log_groups(stack, account, groups)):
        if tags.get(names.TAG_STACK) == stack.name:
            own += 1
        else:
            advice = "delete or import it, or give the stack another name"
            yield Remark(name, "failure", "is there, without this stack's tag: `up` cannot make it", advice)
    if own:
        found = f"{own} of the names are there with this stack's tag: it is up, or another state made it"
        yield Remark(f"stack {stack.name}", "warning", found, "go on if `pulumi stack` shows its resources")
    else:
        yield Remark(f"stack {stack.name}", "ok", f"{len(parameters) + len(groups)} fixed names looked for")


def _parameters(stack: Stack, account: Account, wanted: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    ssm = account.clients("ssm")
    pages = ssm.get_paginator("get_parameters_by_path").paginate(
        Path=f"/gpu-spot/{stack.name}", Recursive=True
    )
    for name in sorted({one["Name"] for page in pages for one in page["Parameters"]}.intersection(wanted)):
        tags = ssm.list_tags_for_resource(ResourceType="Parameter", ResourceId=name)["TagList"]
        yield name, {tag["Key"]: tag["Value"] for tag in tags}


def _log_groups(stack: Stack, account: Account, wanted: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    logs = account.clients("logs")
    pages = logs.get_paginator("describe_log_groups").paginate(logGroupNamePrefix=f"/gpu-spot/{stack.name}/")
    for group in (group for page in pages for group in page["logGroups"]):
        if group["logGroupName"] in wanted:
            arn = group["arn"].removesuffix(":*")
            yield group["logGroupName"], logs.list_tags_for_resource(resourceArn=arn)["tags"]
