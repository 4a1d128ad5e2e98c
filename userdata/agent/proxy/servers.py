"""Which server of HAProxy's table has which worker's address; pure.

The table is read from HAProxy each time: neither a restart of the agent nor a lost response changes what is
decided. A host has a row, its workers one server each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from userdata.agent.proxy.haproxy_config import BACKEND, server_name
from userdata.agent.proxy.runtime import ServerState


@dataclass(frozen=True)
class TablePlan:
    """The commands that give each host a row, and the addresses for which there is no room."""

    commands: tuple[str, ...]
    without_row: tuple[str, ...]


def plan(
    table: Iterable[ServerState],
    in_flight: Mapping[str, int],
    addresses: Collection[str],
    rows: int,
    slots: int,
) -> TablePlan:
    """Return what brings the table to ``addresses``.

    A host that is gone is set to maintenance; its row is used again once no request is in flight there. A new
    one starts draining: the agent's ``ready`` ends that. HAProxy would otherwise send it requests before its
    first check, as a server that leaves maintenance counts as up.

    Args:
        table: the servers as HAProxy reports them.
        in_flight: requests by server name.
        addresses: the hosts' addresses.
        rows: rows of the table.
        slots: servers of a row.
    """
    servers = {server.name: server for server in table}
    commands: list[str] = []
    row_of: dict[str, int] = {}
    free: list[int] = []
    for row in range(1, rows + 1):
        members = [servers[server_name(slot, row)] for slot in range(slots)]
        active = [server for server in members if not server.is_disabled]
        if active and active[0].address in addresses and active[0].address not in row_of:
            row_of[active[0].address] = row
        elif active:
            commands += [f"set server {BACKEND}/{server.name} state maint" for server in active]
        elif not any(in_flight.get(server.name, 0) for server in members):
            free.append(row)
    without_row = []
    for address in sorted(addresses):
        if address not in row_of and free:
            # An agent at the address of a row, also of one in maintenance, ends that.
            same = (row for row in free if servers[server_name(0, row)].address == address)
            row_of[address] = next(same, free[0])
            free.remove(row_of[address])
        if address not in row_of:
            without_row.append(address)
            continue
        for slot in range(slots):
            server = servers[server_name(slot, row_of[address])]
            commands += _activate(server, address)
    return TablePlan(tuple(commands), tuple(without_row))


def _activate(server: ServerState, address: str) -> list[str]:
    if server.address == address and not server.is_disabled:
        return []
    name = f"{BACKEND}/{server.name}"
    to_maintenance = [] if server.is_disabled else [f"set server {name} state maint"]
    return [*to_maintenance, f"set server {name} addr {address}", f"set server {name} state drain"]
