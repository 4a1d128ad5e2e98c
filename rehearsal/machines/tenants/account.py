"""The account of a shared host's tenants, derived from the journal (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Final

from rehearsal.machines.journal import Entry, Kind
from rehearsal.results.moves import Cause, Contents
from rehearsal.results.tenancy import Away, Return

_CAUSES: Final[dict[Kind, Cause]] = {"notice": "notice", "gone": "loss", "released": "hand-over"}
_NOTHING: Final = Contents(0, "")


def returns(entries: Sequence[Entry]) -> tuple[Return, ...]:
    """Return the tenants' moves between hosts, in order of time; restarts on one host do not count."""
    tenant_returns = []
    for tenant in sorted({entry.tenant for entry in entries if entry.tenant}):
        ran = [entry for entry in entries if entry.tenant == tenant and entry.kind == "running"]
        stays = [[*stay] for _, stay in groupby(ran, key=lambda entry: entry.instance)]
        tenant_returns += [_return(entries, old[-1], new[0]) for old, new in pairwise(stays)]
    return tuple(
        sorted(tenant_returns, key=lambda tenant_return: (tenant_return.ended, tenant_return.tenant))
    )


def away(entries: Sequence[Entry], observed_at: float, *, moving: bool) -> tuple[Away, ...]:
    """Return the tenants whose container had ended and did not run at ``observed_at``."""
    last = {entry.tenant: entry for entry in entries if entry.tenant}
    ended = sorted((name, last_entry.at) for name, last_entry in last.items() if last_entry.kind == "stopped")
    return tuple(Away(name, at, observed_at, moving) for name, at in ended)


def _return(entries: Sequence[Entry], old: Entry, new: Entry) -> Return:
    begin, end = entries.index(old), entries.index(new)
    between = entries[begin:end]
    zones = {entry.volume: entry.zone for entry in entries if entry.kind == "created"}
    stopped = [
        e for e in between if e.kind == "stopped" and (e.tenant, e.instance) == (old.tenant, old.instance)
    ]
    unmounts = [
        e for e in between if e.kind == "unmounted" and (e.volume, e.instance) == (old.volume, old.instance)
    ]
    mounts = [
        e for e in between if e.kind == "mounted" and (e.volume, e.instance) == (new.volume, new.instance)
    ]
    causes = [e.kind for e in between if e.instance == old.instance and e.kind in _CAUSES]
    return Return(
        old.tenant,
        # Without another entry the container ended without a notice.
        _CAUSES[causes[0]] if causes else "loss",
        zones[old.volume],
        zones[new.volume],
        stopped[-1].at,
        new.at,
        (unmounts[-1].contents if unmounts else None) or _NOTHING,
        (mounts[-1].contents if mounts else None) or _NOTHING,
    )
