"""The user that work runs as: nobody special, and out of reach of the instance's own role.

The metadata service hands the role's credentials to whoever can ask it, and by default that is everybody
(EC2 user guide, "Limit access to the Instance Metadata Service": local firewall rules by user).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from contracts.agent.names import JOB_HOME, JOB_TMP
from userdata.agent.machine import log
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import Host

_DEVICE_GROUPS: Final = ("video", "render")
"""They own ``/dev/dri`` and, on some images, the GPUs."""
_METADATA: Final = (("ip", "169.254.169.254"), ("ip6", "fd00:ec2::254"))
_TABLE: Final = "gpu_spot_job"
_IPV6: Final = Path("/proc/net/if_inet6")


def make(host: Host, user: str) -> str:
    """Make the user, its home and its empty folder for temporary files; return its id.

    A system user without a password, a shell or a right to become somebody else. One that is there stays, and
    so does what its home holds.

    Raises:
        AgentError: it cannot be made.
    """
    add(host, user, "--user-group", f"--home-dir={JOB_HOME}")
    if groups := ",".join(_there(host)):
        host.run(["usermod", "--append", f"--groups={groups}", user])
    host.run(["rm", "--recursive", "--force", "--one-file-system", str(JOB_TMP)])
    for place in (JOB_HOME, JOB_TMP):
        owner = [f"--owner={user}", f"--group={user}"]
        host.run(["install", "--directory", "--mode=0700", *owner, str(place)])
    return host.run(["id", "--user", user]).strip()


def add(host: Host, user: str, *options: str) -> None:
    """Add a system user that nobody can log in as, unless it is there; ``options`` are ``useradd``'s.

    Raises:
        AgentError: it cannot be made.
    """
    try:
        host.run(["id", "--user", user])
    except AgentError:
        host.run(["useradd", "--system", *options, "--shell=/usr/sbin/nologin", user])
        log.info("user made", user=user)


def keep_from_metadata(host: Host, user_id: str) -> None:
    """Refuse the user whatever it sends to the metadata service, until the next boot; twice is once.

    By nftables, or else by iptables.

    Raises:
        AgentError: this machine has neither, or they refuse. Nothing may run as that user then.
    """
    try:
        host.run(["nft", "--file", "-"], stdin=nft_rules(user_id))
    except AgentError as by_nft:
        try:
            for argv in iptables_rules(user_id):
                _insert(host, argv)
        except AgentError as by_iptables:
            raise AgentError(
                f"user {user_id} cannot be kept from the instance's metadata, so nothing is started: "
                f"{by_nft}; {by_iptables}; allowed: a machine with nftables or iptables"
            ) from None


def nft_rules(user_id: str) -> str:
    """Return the rules as one transaction: the table is new or replaced whole, and never away."""
    rules = "".join(
        f"    {family} daddr {address} meta skuid {user_id} reject\n" for family, address in _METADATA
    )
    return (
        f"table inet {_TABLE}\ndelete table inet {_TABLE}\n"
        f"table inet {_TABLE} {{\n  chain output {{\n"
        f"    type filter hook output priority filter; policy accept;\n{rules}  }}\n}}\n"
    )


def iptables_rules(user_id: str) -> Iterator[list[str]]:
    """Yield a rule for each kind of address that this machine has, without what is done with it."""
    for family, address in _METADATA:
        if family == "ip" or _IPV6.exists():
            program = "iptables" if family == "ip" else "ip6tables"
            match = ["--destination", address, "--match", "owner", "--uid-owner", user_id]
            yield [program, "OUTPUT", *match, "--jump", "REJECT"]


def _insert(host: Host, rule: list[str]) -> None:
    program, *rest = rule
    try:
        host.run([program, "--wait", "--check", *rest])
    except AgentError:
        host.run([program, "--wait", "--insert", *rest])


def _there(host: Host) -> Iterator[str]:
    for group in _DEVICE_GROUPS:
        try:
            host.run(["getent", "group", group])
        except AgentError:
            continue
        yield group
