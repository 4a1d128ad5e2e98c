"""Ways between tenants and to the host beside TCP over IPv4: IPv6, and datagrams to the port of DNS."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.real.tenants import ADDRESS, METADATA_IPV6, OUTSIDE_IPV6, SERVICE, SharedHost, outside, until
from userdata.agent.tenants.host.container import bridge_of

NAMES: Final = ("reaches others by IPv6", "tunnels to others through the port of DNS")
"""Two kinds of attack; each has several targets."""
_DNS: Final = 53
_WAIT_SECONDS: Final = 1.0
_LISTEN: Final = f"""
import socket
listening = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
listening.bind(("::", {_DNS}))
print("ready", flush=True)
while True:
    print(listening.recv(100).decode(), flush=True)
"""


def reached(host: SharedHost) -> list[str]:
    """Return what tenants reach that they must not; their containers get IPv6, which Docker turns off."""
    with ipv6(host), outside(host):
        until(lambda: host.answers(_of(host, "ada", 2), 8080), "the host reaches a tenant by IPv6")
        until(lambda: host.reaches("ada", OUTSIDE_IPV6, 80), "a tenant reaches the world by IPv6")
        until(lambda: host.answers(METADATA_IPV6, 80, user=2999), "another user of the host reaches EC2's")
        found = [*_by_ipv6(host), *_by_dns(host)]
        if host.answers(METADATA_IPV6, 80, user=host.users()["ada"]):
            found.append(f"a process of ada's user on the host reaches {METADATA_IPV6}:80")
        return found


@contextlib.contextmanager
def ipv6(host: SharedHost) -> Iterator[None]:
    """Let all containers and their bridges have IPv6, and the host route it, as if Docker had it on."""
    _enter(host.inside, "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")
    for name, uid in host.users().items():
        bridge = bridge_of(uid)
        _enter(host.inside, _with_address(bridge, _of(host, name, 1)))
        route = f"ip -6 route add default via {_of(host, name, 1)}"
        _enter(_network(host, name), f"{_with_address('eth0', _of(host, name, 2))}; {route}")
    try:
        yield
    finally:
        for name, uid in host.users().items():
            for inside, device in ((host.inside, bridge_of(uid)), (_network(host, name), "eth0")):
                _enter(inside, f"echo 1 > /proc/sys/net/ipv6/conf/{device}/disable_ipv6")
        _enter(host.inside, "echo 0 > /proc/sys/net/ipv6/conf/all/forwarding")


def _by_ipv6(host: SharedHost) -> Iterator[str]:
    users = host.users()
    for name, uid in users.items():
        gateway = _of(host, name, 1)
        targets = [(gateway, SERVICE), (_link_local(host, bridge_of(uid)), SERVICE), (METADATA_IPV6, 80)]
        targets += [(_of(host, other, 2), 8080) for other in users if other != name]
        with ThreadPoolExecutor(len(targets)) as pool:
            answers = pool.map(lambda target, name=name: host.reaches(name, *target), targets)  # type: ignore[misc]
            for (address, port), is_reached in zip(targets, answers, strict=True):
                if is_reached:
                    yield f"{name} reaches {address.partition('%')[0]}:{port}"


def _by_dns(host: SharedHost) -> list[str]:
    users = host.users()
    networks = {"the host": host.inside, **{name: _network(host, name) for name in users}}
    with _listening(networks) as listeners:
        for name in users:
            addresses = [ADDRESS, host.gateway(name), _of(host, name, 1)]
            for other in users:
                if other != name:
                    addresses += [host.address(other), _of(host, other, 2)]
            script = "; ".join(f"echo {name} > /dev/udp/{address}/{_DNS}" for address in addresses)
            host.within(name, f"({script}) 2>/dev/null")
        time.sleep(_WAIT_SECONDS)  # what is on its way arrives
        received = {place: _output(listener).split() for place, listener in listeners.items()}
    return sorted({f"{name} tunnels to {place}" for place, tenants in received.items() for name in tenants})


@contextlib.contextmanager
def _listening(networks: Mapping[str, Sequence[str]]) -> Iterator[dict[str, subprocess.Popen[str]]]:
    with contextlib.ExitStack() as stack:
        listeners = {}
        for place, inside in networks.items():
            argv = [*inside, sys.executable, "-c", _LISTEN]
            process = stack.enter_context(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            listeners[place] = process
        yield listeners


def _output(process: subprocess.Popen[str]) -> str:
    """End a listener; return what it received."""
    process.kill()
    assert process.stdout is not None
    return process.stdout.read()


def _of(host: SharedHost, name: str, end: int) -> str:
    """Return an address of a tenant's bridge (1) or container (2)."""
    return f"fd00:0:0:{host.users()[name]}::{end}"


def _network(host: SharedHost, name: str) -> list[str]:
    return ["nsenter", f"--net=/proc/{host.pids()[name]}/ns/net", "--"]


def _with_address(device: str, address: str) -> str:
    on = f"echo 0 > /proc/sys/net/ipv6/conf/{device}/disable_ipv6"
    return f"{on}; ip addr add {address}/64 dev {device} nodad"


def _link_local(host: SharedHost, bridge: str) -> str:
    argv = [*host.inside, "ip", "-json", "-6", "addr", "show", "dev", bridge, "scope", "link"]
    listed = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
    [address] = {entry["local"] for link in listed for entry in link.get("addr_info", ()) if "local" in entry}
    return f"{address}%eth0"


def _enter(inside: Sequence[str], script: str) -> None:
    subprocess.run([*inside, "sh", "-ec", script], check=True, capture_output=True)
