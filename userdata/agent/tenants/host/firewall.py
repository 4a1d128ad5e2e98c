"""What tenants cannot reach, as nftables rules: the host, each other, the metadata service.

A table of our own: Docker replaces its chains when it starts, and with its nftables backend there is no chain
``DOCKER-USER`` (Docker's manual, "Docker with nftables"). What a base chain drops no other accepts again
(nft(8), "VERDICT STATEMENTS").
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import Host
from userdata.agent.tenants.host.container import BRIDGES

TABLE: Final = "gpu_spot_tenants"

# Of the addresses that AWS answers at on each instance's own link, name service and time are left (VPC user
# guide, "Amazon DNS server"; EC2 user guide, "Amazon Time Sync Service"); metadata is not, nor what hands out
# credentials elsewhere (ECS 169.254.170.2, EKS 169.254.170.23).
_LINK: Final = (
    "ip daddr 169.254.0.0/16 ip daddr != { 169.254.169.123, 169.254.169.253 }",
    "ip6 daddr fd00:ec2::/32 ip6 daddr != { fd00:ec2::123, fd00:ec2::253 }",
    "ip6 daddr fe80::/10",
)


def rules(users: Iterable[int]) -> str:
    """Return the rules as one transaction: the table is new or replaced whole, and never away.

    Of a tenant's bridge nothing goes to the host but answers, nothing to another bridge of a tenant, and
    nothing to the metadata service, by IPv4 and IPv6. ``users`` are the tenants': a process of theirs in the
    host's own network, where none belongs, does not reach the metadata service either.
    """
    bridge, own = f'"{BRIDGES}*"', ", ".join(map(str, sorted(users)))
    lines = [
        "  chain input {",
        "    type filter hook input priority filter - 10; policy accept;",
        f"    iifname {bridge} ct state established,related accept",
        # Without neighbour discovery there is no IPv6 at all on a bridge.
        f"    iifname {bridge} icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} accept",
        f"    iifname {bridge} drop",
        "  }",
        "  chain forward {",
        "    type filter hook forward priority filter - 10; policy accept;",
        f"    iifname {bridge} oifname {bridge} drop",
        *(f"    iifname {bridge} {match} drop" for match in _LINK),
        "  }",
    ]
    if own:
        lines += [
            "  chain output {",
            "    type filter hook output priority filter - 10; policy accept;",
            *(f"    meta skuid {{ {own} }} {match} reject" for match in _LINK[:2]),
            "  }",
        ]
    body = "\n".join(lines)
    return f"table inet {TABLE}\ndelete table inet {TABLE}\ntable inet {TABLE} {{\n{body}\n}}\n"


def build(host: Host, users: Iterable[int]) -> None:
    """Put the rules up, or anew: twice is once.

    Raises:
        AgentError: this machine has no nftables, or it refuses. No tenant may run without.
    """
    try:
        host.run(["nft", "--file", "-"], stdin=rules(users))
    except AgentError as error:
        raise AgentError(
            f"tenants cannot be walled off, so none is started: {error}; allowed: a machine with nftables"
        ) from None
