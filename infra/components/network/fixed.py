"""What of a network stays as it was made: another wish ends the preview, not an update half-way."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_aws as aws

from contracts import names
from infra.scope import Scope


def cidr_block(scope: Scope, cidr: str) -> pulumi.Output[str]:
    """Return ``cidr``, unless this stack has a VPC that has another.

    The output raises ``pulumi.RunError`` then: a new VPC could be made, but the NAT gateway's address is in
    use, and a file system's mount targets are all in one VPC (EFS's API, ``CreateMountTarget``).
    """
    ours = {f"tag:{names.TAG_STACK}": scope.stack}
    found = pulumi.Output.all(_ids(scope, ours), _ids(scope, ours | {"cidr": cidr}))

    def check(known: Sequence[Sequence[str]]) -> str:
        there, same = known
        if there and not same:
            raise pulumi.RunError(
                f"gpu-spot:network.cidr: {cidr} is not what {', '.join(there)} of this stack has, "
                "allowed: no change (make a second stack)"
            )
        return cidr

    checked: pulumi.Output[str] = found.apply(check)
    return checked


def _ids(scope: Scope, filters: dict[str, str]) -> pulumi.Output[Sequence[str]]:
    asked = [aws.ec2.GetVpcsFilterArgs(name=name, values=[value]) for name, value in filters.items()]
    ids: pulumi.Output[Sequence[str]] = aws.ec2.get_vpcs_output(filters=asked, opts=scope.asking).ids
    return ids
