"""What to do next about the data volume: a pure function of what is observed."""

from __future__ import annotations

from collections.abc import Iterable

from userdata.agent.lease.store import Lease
from userdata.agent.storage.volume.model import (
    FOREIGN,
    LIVE,
    PREPARING,
    Adopt,
    Attach,
    Claim,
    Commit,
    CreateSnapshot,
    CreateVolume,
    Discard,
    EbsVolume,
    Fill,
    Format,
    Grow,
    MarkLive,
    Mount,
    Observed,
    Ready,
    Refuse,
    Snapshot,
    Step,
    Unmount,
    Wait,
)

_GONE = ("deleting", "deleted")
_ATTEMPTS = 3


def plan(observed: Observed) -> Step:
    """Return the next step. The same observation always gives the same step."""
    volumes = tuple(v for v in observed.volumes if v.state not in _GONE)
    lease = observed.lease
    if lease.volume is None:
        return _without_home(observed, volumes)
    strangers = [v.id for v in volumes if v.token is None and v.id != lease.volume]
    if strangers:
        return Refuse(
            f"volume {strangers[0]} has this job's tags, but the job's volume is {lease.volume} and no move "
            "explains the other: remove its gpu-spot:job tag or delete it"
        )
    home = next((v for v in volumes if v.id == lease.volume), None)
    if home is None:
        return Wait(
            f"the job's volume {lease.volume} to appear (deleted by hand? then restore it or clear the item)"
        )
    if home.state == "error":
        return Refuse(f"volume {home.id} is in state error: see the EBS console; no copy is made of it")
    if home.zone == observed.zone:
        return _use_home(observed, volumes, home)
    return _move(observed, volumes, home)


def target(observed: Observed) -> str | None:
    """Return the volume whose device matters to the next step.

    The home if it is in our zone, else our candidate.
    """
    home = next((v for v in observed.volumes if v.id == observed.lease.volume), None)
    if home is not None and home.zone == observed.zone:
        return home.id
    source = None if home is None else home.id
    candidate = _candidate(observed, observed.volumes, source)
    return candidate.id if candidate else None


def _without_home(observed: Observed, volumes: tuple[EbsVolume, ...]) -> Step:
    """First boot of the job, or the table was lost, or the volume was made by hand."""
    lease = observed.lease
    settled = [v for v in volumes if v.tag_state != PREPARING]
    if len(settled) > 1:
        names = ", ".join(sorted(v.id for v in settled))
        return Refuse(
            f"{names} all have this job's tags and nothing tells which is the job's volume; keep one"
        )
    if settled:
        tokens = [*(v.token for v in volumes), *(s.token for s in observed.snapshots)]
        return Adopt(settled[0].id, max(lease.token, *(t or 0 for t in tokens)) + 1)
    candidate = _candidate(observed, volumes, None)
    if candidate is None:
        failed = _failed(observed, volumes)
        return _too_often(failed) or CreateVolume(observed.prepared, None, attempt=len(failed))
    blank = observed.prepared is None
    return _bring_up(observed, volumes, candidate) or _mount_candidate(observed, candidate, blank=blank)


def _use_home(observed: Observed, volumes: tuple[EbsVolume, ...], home: EbsVolume) -> Step:
    bring = _bring_up(observed, volumes, home)
    if bring:
        return bring
    assert observed.device is not None
    if observed.filesystem is None:
        return Refuse(
            f"volume {home.id} is the job's volume but has no file system; nothing is formatted over it"
        )
    if observed.lease.writer != observed.lease.token:
        return Claim()
    if observed.mounted is None:
        return Mount(observed.device)
    if home.tag_state != LIVE or home.token is None:
        return MarkLive(home.id)
    if not observed.grown:
        return Grow()
    if not observed.filled:
        return Fill()
    return _tidy(observed, volumes, home)


def _move(observed: Observed, volumes: tuple[EbsVolume, ...], home: EbsVolume) -> Step:
    """Bring the home from another zone: snapshot, copy, attach, mount, commit."""
    candidate = _candidate(observed, volumes, home.id)
    if candidate:
        return _bring_up(observed, volumes, candidate) or _mount_candidate(observed, candidate, blank=False)
    if home.state != "available":
        holder = f" to {home.instance}" if home.instance else ""
        return Wait(f"volume {home.id} in {home.zone} to be free ({home.attachment or home.state}{holder})")
    good = [s for s in observed.snapshots if _counts(s, home, observed.lease)]
    done = [s for s in good if s.state == "completed"]
    if done:
        chosen, failed = min(done, key=lambda s: s.id), _failed(observed, volumes)
        return _too_often(failed) or CreateVolume(chosen.id, home.id, chosen.size_gib, len(failed))
    if good:
        return Wait(f"snapshot {good[0].id} of {home.id} to be completed ({good[0].progress or 'begun'})")
    mine = [s.id for s in observed.snapshots if s.token == observed.lease.token and s.state == "error"]
    return _too_often(mine) or CreateSnapshot(home.id)


def _failed(observed: Observed, volumes: tuple[EbsVolume, ...]) -> list[str]:
    """Return those that we made under this lease and that EBS could not bring up."""
    return [
        v.id
        for v in volumes
        if v.token == observed.lease.token and v.tag_state == PREPARING and v.state == "error"
    ]


def _too_often(failed: list[str]) -> Refuse | None:
    """Three in a row are no accident: most often the key may not be used."""
    if len(failed) < _ATTEMPTS:
        return None
    return Refuse(
        f"{', '.join(sorted(failed))} ended in state error: see the EBS console for why, and whether the "
        "role may use the volume's KMS key; the job's volume is as it was"
    )


def _counts(snapshot: Snapshot, home: EbsVolume, lease: Lease) -> bool:
    """A snapshot counts if it is of the home and nobody has mounted the home since it was begun."""
    return (
        snapshot.source == home.id
        and snapshot.token is not None
        and lease.writer < snapshot.token <= lease.token
        and snapshot.state != "error"
    )


def _candidate(observed: Observed, volumes: tuple[EbsVolume, ...], source: str | None) -> EbsVolume | None:
    """Return the volume that we made under this very lease to become home, if there is one.

    Candidates of earlier leases are never taken over: whoever made them may still be about to delete them.
    """
    mine = [
        v
        for v in volumes
        if v.token == observed.lease.token
        and v.tag_state == PREPARING
        and v.source == source
        and v.zone == observed.zone
        and v.state not in (*_GONE, "error")
        and v.id != observed.lease.volume
    ]
    return min(mine, key=lambda v: v.id) if mine else None


def _bring_up(observed: Observed, volumes: tuple[EbsVolume, ...], volume: EbsVolume) -> Step | None:
    """Get a volume of our zone attached to us with its device visible and the mount point free.

    None when it is.
    """
    if observed.mounted == FOREIGN:
        return Wait("the mount point to be free of something that is no data volume of this job")
    if observed.mounted is not None and observed.mounted != volume.id:
        return Unmount()
    if volume.state == "creating":
        return Wait(f"volume {volume.id} to be created")
    if volume.instance is None and volume.state == "available":
        taken = {v.device for v in volumes if v.instance == observed.instance}
        return Attach(volume.id, next(name for name in observed.devices if name not in taken))
    if volume.instance != observed.instance or volume.attachment != "attached":
        return Wait(
            f"volume {volume.id}, {volume.attachment or volume.state} at {volume.instance or 'no instance'}"
        )
    if observed.device is None:
        return Wait(f"the device of volume {volume.id} to appear")
    return None


def _mount_candidate(observed: Observed, candidate: EbsVolume, *, blank: bool) -> Step:
    assert observed.device is not None
    if observed.filesystem is None:
        if not blank:
            return Refuse(
                f"volume {candidate.id}, a copy of {candidate.source}, has no file system; both are kept"
            )
        return Format(observed.device)
    if observed.mounted is None:
        return Mount(observed.device)
    return Commit(candidate.id)


def _tidy(observed: Observed, volumes: tuple[EbsVolume, ...], home: EbsVolume) -> Step:
    """Remove what earlier leases, crashes and this move left. The home is mounted and committed here."""
    left = []
    for volume in sorted(volumes, key=lambda v: v.id):
        if volume.id == home.id or volume.token is None or volume.token > observed.lease.token:
            continue
        if volume.instance is None:
            if volume.state != "creating":
                return Discard("volume", volume.id)
        elif volume.instance == observed.instance and volume.attachment == "attached":
            return Discard("detach", volume.id)
        left.append(volume.id)
    for snapshot in superfluous(observed.snapshots, home, observed.lease.token):
        return Discard("snapshot", snapshot.id)
    return Ready(home.id, tuple(left))


def superfluous(snapshots: Iterable[Snapshot], home: EbsVolume, token: int) -> tuple[Snapshot, ...]:
    """Return the snapshots that the holder of ``token`` may delete, the oldest first.

    The newest is kept, and with it, until it is completed, the newest that is: the next snapshot copies only
    what has changed since, and it is a backup. It is of the home or of what the home is a copy of.
    """
    ours = [s for s in snapshots if s.token is not None and s.token <= token]
    ours.sort(key=lambda s: (s.token or 0, s.started, s.id))
    kept: set[str] = set()
    for snapshot in reversed(ours):
        is_whole = snapshot.state == "completed"
        if snapshot.source in (home.id, home.source) and (
            is_whole or (snapshot.state == "pending" and not kept)
        ):
            kept.add(snapshot.id)
            if is_whole:
                break
    return tuple(s for s in ours if s.id not in kept)
