"""Network settings that cannot change: a different value fails the preview, not the update."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_aws as aws

from contracts import names
from infra.scope import Scope


def cidr_block(scope: Scope, cidr: str) -> pulumi.Output[str]:
    """Return ``cidr``; the output raises ``pulumi.RunError`` if the stack's VPC has another.

    Replacing the VPC would fail: the NAT gateway's address is in use, and all mount targets of a file system
    must be in one VPC (EFS API, ``CreateMountTarget``).
    """
    by_stack = {f"tag:{names.TAG_STACK}": scope.stack}
    vpc_ids = pulumi.Output.all(_ids(scope, by_stack), _ids(scope, by_stack | {"cidr": cidr}))

    def check(ids: Sequence[Sequence[str]]) -> str:
        existing, with_same_cidr = ids
        if existing and not with_same_cidr:
            raise pulumi.RunError(
                f"gpu-spot:network.cidr: {cidr} is not what {', '.join(existing)} of this stack has, "
                "allowed: no change (make a second stack)"
            )
        return cidr

    result: pulumi.Output[str] = vpc_ids.apply(check)
    return result


def _ids(scope: Scope, filters: dict[str, str]) -> pulumi.Output[Sequence[str]]:
    arguments = [aws.ec2.GetVpcsFilterArgs(name=name, values=[value]) for name, value in filters.items()]
    ids: pulumi.Output[Sequence[str]] = aws.ec2.get_vpcs_output(
        filters=arguments, opts=scope.invoke_options
    ).ids
    return ids
