"""The unprivileged user that work runs as, without access to the credentials of the instance role.

By default every user can read the role's credentials from the metadata service.
Source: EC2 user guide, "Limit access to the Instance Metadata Service" (local firewall rules by user).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from contracts.agent.names import JOB_HOME, JOB_TMP
from userdata.agent.machine import log
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import QUICK, SLOW, Host

_DEVICE_GROUPS: Final = ("video", "render")
"""Owners of ``/dev/dri`` and, on some images, of the GPUs."""
_METADATA: Final = (("ip", "169.254.169.254"), ("ip6", "fd00:ec2::254"))
_TABLE: Final = "gpu_spot_job"
_IPV6: Final = Path("/proc/net/if_inet6")


def create_user(host: Host, user: str) -> str:
    """Create the user, its home and an empty directory for temporary files; return its id.

    A system user without a password, a shell or sudo. An existing user and its home are kept.

    Raises:
        AgentError: it cannot be created.
    """
    add_system_user(host, user, "--user-group", f"--home-dir={JOB_HOME}")
    if groups := ",".join(_existing_device_groups(host)):
        host.run(["usermod", "--append", f"--groups={groups}", user], QUICK)
    host.run(["rm", "--recursive", "--force", "--one-file-system", str(JOB_TMP)], SLOW)
    for directory in (JOB_HOME, JOB_TMP):
        owner = [f"--owner={user}", f"--group={user}"]
        host.run(["install", "--directory", "--mode=0700", *owner, str(directory)], QUICK)
    return host.run(["id", "--user", user], QUICK).strip()


def make_directory(host: Host, directory: Path, user: str) -> None:
    """Make a directory of a user's, unless ``user`` is empty, where a job may have put a link to another one.

    ``install --directory`` would follow the link, and give what it names to the user.
    """
    host.run(["mkdir", "--parents", str(directory)], QUICK)
    if user:
        host.run(["chown", "--no-dereference", user, str(directory)], QUICK)


def add_system_user(host: Host, user: str, *options: str) -> None:
    """Add a system user without a login shell unless it exists; ``options`` are those of ``useradd``.

    Raises:
        AgentError: it cannot be created.
    """
    try:
        host.run(["id", "--user", user], QUICK)
    except AgentError:
        host.run(["useradd", "--system", *options, "--shell=/usr/sbin/nologin", user], QUICK)
        log.info("user created", user=user)


def block_metadata_access(host: Host, user_id: str) -> None:
    """Reject the user's traffic to the metadata service until the next boot; idempotent.

    Uses nftables, else iptables.

    Raises:
        AgentError: both are missing or fail. Nothing may run as that user then.
    """
    try:
        host.run(["nft", "--file", "-"], QUICK, stdin=nft_rules(user_id))
    except AgentError as by_nft:
        try:
            for argv in iptables_rules(user_id):
                insert_rule(host, argv)
        except AgentError as by_iptables:
            raise AgentError(
                f"cannot block user {user_id} from the instance metadata, so nothing is started: "
                f"{by_nft}; {by_iptables}; use a machine with nftables or iptables"
            ) from None


def nft_rules(user_id: str) -> str:
    """Return the rules as one transaction that creates or replaces the table atomically."""
    rules = "".join(
        f"    {family} daddr {address} meta skuid {user_id} reject\n" for family, address in _METADATA
    )
    return (
        f"table inet {_TABLE}\ndelete table inet {_TABLE}\ntable inet {_TABLE} {{\n  chain output {{\n    "
        f"type filter hook output priority filter; policy accept;\n{rules}  }}\n}}\n"
    )


def iptables_rules(user_id: str) -> Iterator[list[str]]:
    """Yield a rule for each IP version of this machine, without the ``--check`` or ``--insert`` option."""
    for family, address in _METADATA:
        if family == "ip" or _IPV6.exists():
            program = "iptables" if family == "ip" else "ip6tables"
            match = ["--destination", address, "--match", "owner", "--uid-owner", user_id]
            yield [program, "OUTPUT", *match, "--jump", "REJECT"]


def insert_rule(host: Host, rule: list[str]) -> None:
    """Insert a rule, named by program, chain and match, unless it is there; raise `AgentError`."""
    program, *rest = rule
    try:
        host.run([program, "--wait", "--check", *rest], QUICK)
    except AgentError:
        host.run([program, "--wait", "--insert", *rest], QUICK)


def _existing_device_groups(host: Host) -> Iterator[str]:
    for group in _DEVICE_GROUPS:
        try:
            host.run(["getent", "group", group], QUICK)
        except AgentError:
            continue
        yield group
