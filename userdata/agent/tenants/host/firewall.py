"""nftables rules that block tenants from the host, other tenants and the metadata service, and bound traffic.

They are in a separate table: Docker replaces its chains when it starts, and its nftables backend has no chain
``DOCKER-USER`` (Docker's manual, "Docker with nftables"). A drop in one base chain is final (nft(8), "VERDICT
STATEMENTS").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from userdata.agent.machine import log
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import QUICK, Host
from userdata.agent.tenants.host.container import BRIDGES, bridge_of

TABLE: Final = "gpu_spot_tenants"

# Of AWS's link-local addresses, DNS and time are allowed (VPC user guide, "Amazon DNS server"; EC2 user
# guide, "Amazon Time Sync Service"); the metadata service is blocked, as are the credential endpoints of ECS
# (169.254.170.2) and EKS (169.254.170.23).
_LINK: Final = (
    "ip daddr 169.254.0.0/16 ip daddr != { 169.254.169.123, 169.254.169.253 }",
    "ip6 daddr fd00:ec2::/32 ip6 daddr != { fd00:ec2::123, fd00:ec2::253 }",
    "ip6 daddr fe80::/10",
)

_MAX_RATE: Final = 10**10
"""Bytes per second, 80 Gbit/s: the kernel counts bytes times nanoseconds in 64 bits, and refuses a rate above
18 GB/s (Linux, ``nft_limit.c``)."""

MAX_CONNECTIONS: Final = 4096
"""Connections to the outside that a tenant may have. The kernel has one table for those of all tenants, of at
most 262,144 by default; when it is full, it drops new ones (kernel manual, "nf_conntrack_max")."""


def rules(rates: Mapping[int, int]) -> str:
    """Return the rules as one transaction that creates or replaces the table atomically.

    They drop traffic from a tenant's bridge to the host (except replies), to other tenants' bridges and to
    the metadata service, for IPv4 and IPv6. ``rates`` are bytes per second by the tenants' user ids: traffic
    of a bridge above its rate is dropped, with bursts of one second's worth (Linux, ``nft_limit.c``). A new
    connection is dropped while the tenant has ``MAX_CONNECTIONS``, opened since the rules were applied. The
    users' processes cannot reach the metadata service even from the host's network, where none should be.
    """
    bridge, user_ids = f'"{BRIDGES}*"', ", ".join(map(str, sorted(rates)))
    lines = [
        "  chain input {",
        "    type filter hook input priority filter - 10; policy accept;",
        f"    iifname {bridge} ct state established,related accept",
        # IPv6 on a bridge needs neighbour discovery.
        f"    iifname {bridge} icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} accept",
        f"    iifname {bridge} drop",
        "  }",
        "  chain forward {",
        "    type filter hook forward priority filter - 10; policy accept;",
        f"    iifname {bridge} oifname {bridge} drop",
        *(f"    iifname {bridge} {match} drop" for match in _LINK),
        *(
            f'    {direction} "{bridge_of(uid)}" limit rate over {min(rate, _MAX_RATE)} bytes/second drop'
            for uid, rate in sorted(rates.items())
            for direction in ("iifname", "oifname")
        ),
        *(
            f'    iifname "{bridge_of(uid)}" ct state new ct count over {MAX_CONNECTIONS} drop'
            for uid in sorted(rates)
        ),
        "  }",
    ]
    if user_ids:
        lines += [
            "  chain output {",
            "    type filter hook output priority filter - 10; policy accept;",
            *(f"    meta skuid {{ {user_ids} }} {match} reject" for match in _LINK[:2]),
            "  }",
        ]
    body = "\n".join(lines)
    return f"table inet {TABLE}\ndelete table inet {TABLE}\ntable inet {TABLE} {{\n{body}\n}}\n"


def restore_rules(host: Host, rates: Mapping[int, int]) -> bool:
    """Apply the rules again if they are gone; return whether they were there; raises as `apply_rules`."""
    try:
        host.run(["nft", "list", "table", "inet", TABLE], QUICK)
    except AgentError as error:
        log.error("tenants were not isolated; rules are applied again", error=str(error))
        apply_rules(host, rates)
        return False
    return True  # as they are: what they count would begin again


def apply_rules(host: Host, rates: Mapping[int, int]) -> None:
    """Apply the rules; idempotent.

    Raises:
        AgentError: nftables is missing or fails. No tenant may run then.
    """
    try:
        host.run(["nft", "--file", "-"], QUICK, stdin=rules(rates))
    except AgentError as error:
        raise AgentError(
            f"cannot isolate tenants, so none is started: {error}; use a machine with nftables"
        ) from None
