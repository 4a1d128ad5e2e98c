"""Migrations of a job, derived from the journal (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from rehearsal.machines.journal import Entry, Kind
from rehearsal.machines.process import TrainingProfile
from rehearsal.results.moves import Cause, Contents, JobMigrations, Move

NOTHING = Contents(0, "")
CAUSES: Final[dict[Kind, Cause]] = {"notice": "notice", "gone": "loss", "released": "hand-over"}


def collect_migrations(entries: Sequence[Entry], profile: TrainingProfile) -> JobMigrations:
    """Return the migrations of the job whose nodes wrote ``entries``."""
    starts = _first_starts(entries)
    lost = {entry.instance for entry in entries if entry.kind in ("notice", "released", "gone")}
    return JobMigrations(
        moves=tuple(_move(entries, old, new) for old, new in pairwise(starts)),
        underway=bool(starts) and starts[-1].instance in lost,
        step_seconds=profile.step_seconds,
        checkpoint_steps=profile.checkpoint_steps,
    )


def _first_starts(entries: Iterable[Entry]) -> list[Entry]:
    """Return the first start of training on each instance; a restart there is not a move."""
    starts: dict[str, Entry] = {}
    for entry in entries:
        if entry.kind == "running":
            starts.setdefault(entry.instance, entry)
    return list(starts.values())


def _move(entries: Sequence[Entry], old: Entry, new: Entry) -> Move:
    """Return the move from the instance of ``old`` to that of ``new``, where training has just started."""
    between = entries[entries.index(old) : entries.index(new)]
    zones = {entry.volume: entry.zone for entry in entries if entry.kind == "created"}
    unmount = _last(between, "unmounted", instance=old.instance)
    mount = _last(between, "mounted", instance=new.instance)
    freed = _last(between, "free", volume=unmount.volume, instance=old.instance)
    ends = [e for e in between if e.instance == old.instance and e.kind in CAUSES]
    if not ends:
        raise ValueError(f"the journal has no end of {old.instance}")
    if unmount.volume == mount.volume:
        # A file system needs no transfer.
        attached = all_of(between, "attaching", instance=new.instance)
        transfer = copied = attached[-1] if attached else mount
    else:
        copied = _last(between, "created", volume=mount.volume)
        transfer = _last(between, "snapshot", snapshot=copied.snapshot)
    return Move(
        cause=CAUSES[ends[0].kind],
        from_zone=unmount.zone or zones[unmount.volume],
        to_zone=mount.zone or zones[mount.volume],
        from_volume=unmount.volume,
        to_volume=mount.volume,
        # Without a notice the volume is free before the end of the instance is recorded.
        lost=min(ends[0].at, freed.at),
        freed=freed.at,
        # A snapshot that was taken in advance can precede the loss.
        transfer_started=max(freed.at, transfer.at),
        copied=max(freed.at, copied.at),
        mounted=mount.at,
        running=new.at + new.loads,
        step=new.step,
        # A real command may be killed between a save and its report.
        steps_lost=max(_last(between, "stopped", instance=old.instance).step - new.step, 0),
        before=unmount.contents or NOTHING,
        after=mount.contents or NOTHING,
    )


def all_of(entries: Iterable[Entry], kind: Kind, **fields: str) -> list[Entry]:
    """Return the entries of a kind with these fields."""
    return [
        entry
        for entry in entries
        if entry.kind == kind and all(getattr(entry, name) == value for name, value in fields.items())
    ]


def _last(entries: Iterable[Entry], kind: Kind, **fields: str) -> Entry:
    matches = all_of(entries, kind, **fields)
    if not matches:
        raise ValueError(f"the journal has no {kind!r} of {', '.join(fields.values())}")
    return matches[-1]
