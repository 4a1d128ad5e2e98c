"""The planner of the data volume: the next step as a pure function of the observation."""

from __future__ import annotations

from collections.abc import Iterable

from contracts.agent.names import VOLUME_NAME
from userdata.agent.lease.store import Lease
from userdata.agent.storage.volume.model import (
    DELETED_STATES,
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

_MAX_ATTEMPTS = 3


def plan(observed: Observed) -> Step:
    """Return the next step; deterministic."""
    volumes = tuple(v for v in observed.volumes if v.state not in DELETED_STATES)
    lease = observed.lease
    if lease.volume is None:
        return _without_current_volume(observed, volumes)
    untokened = [v.id for v in volumes if v.token is None and v.id != lease.volume]
    if untokened:
        return Refuse(
            f"volume {untokened[0]} has this job's tags but was not created by the agent; the job's volume "
            f"is {lease.volume}: remove the gpu-spot:job tag of {untokened[0]} or delete it"
        )
    current = next((v for v in volumes if v.id == lease.volume), None)
    if current is None:
        return Wait(
            f"the job's volume {lease.volume} to appear (if it was deleted, restore it or clear the item)"
        )
    if current.state == "error":
        return Refuse(f"volume {current.id} is in state error: see the EBS console; it is not copied")
    if current.zone == observed.zone:
        return _use_current_volume(observed, volumes, current)
    return _move(observed, volumes, current)


def target_volume(observed: Observed) -> str | None:
    """Return the volume to mount: the current volume if it is in this zone, else the candidate."""
    current = next((v for v in observed.volumes if v.id == observed.lease.volume), None)
    if current is not None and current.zone == observed.zone:
        return current.id
    source = None if current is None else current.id
    candidate = _candidate(observed, observed.volumes, source)
    return candidate.id if candidate else None


def _without_current_volume(observed: Observed, volumes: tuple[EbsVolume, ...]) -> Step:
    """Return the step if the item names no volume: first boot, a lost table, or a volume created by hand."""
    lease = observed.lease
    finished = [v for v in volumes if v.tag_state != PREPARING]
    if len(finished) > 1:
        names = ", ".join(sorted(v.id for v in finished))
        return Refuse(
            f"{names} all have this job's tags, allowed: one; remove the gpu-spot:job tag of the others"
        )
    if finished:
        tokens = [*(v.token for v in volumes), *(s.token for s in observed.snapshots)]
        return Adopt(finished[0].id, max(lease.token, *(t or 0 for t in tokens)) + 1)
    candidate = _candidate(observed, volumes, None)
    if candidate is None:
        failed = _failed(observed, volumes)
        return _refuse_after_failures(failed) or _create_first_volume(observed, len(failed))
    blank = observed.prepared is None and not _adopted_snapshots(observed)
    return _attach_step(observed, volumes, candidate) or _mount_candidate(observed, candidate, blank=blank)


def _create_first_volume(observed: Observed, attempt: int) -> Step:
    """Return the step to a job's first volume: from an adopted snapshot, a prepared dataset, or blank."""
    adopted = _adopted_snapshots(observed)
    if len(adopted) > 1:
        listed = ", ".join(s.id for s in adopted)
        return Refuse(
            f"{listed} all have this job's tags, allowed: one; remove the gpu-spot:job tag of others"
        )
    for snapshot in adopted:
        if snapshot.state == "pending":
            return Wait(f"snapshot {snapshot.id} to be completed ({snapshot.progress or 'started'})")
        if snapshot.state != "completed":
            return Refuse(
                f"snapshot {snapshot.id} is in state {snapshot.state}; no volume is created from it"
            )
        return CreateVolume(snapshot.id, None, snapshot.size_gib, attempt)
    if observed.prepared is None and observed.unclaimed:
        return Refuse(
            f"no blank volume is created: {', '.join(observed.unclaimed)} has the name of data volumes "
            f"({VOLUME_NAME}) and belongs to no job; use `gpu-spot jobs adopt-volume JOB "
            f"{observed.unclaimed[0]}`, or `--blank` instead of the id to start at step 0; then "
            "`gpu-spot jobs retry JOB`"
        )
    return CreateVolume(observed.prepared, None, attempt=attempt)


def _adopted_snapshots(observed: Observed) -> list[Snapshot]:
    """Return the snapshots that a user tagged for the job; the agent's own have a token."""
    return sorted((s for s in observed.snapshots if s.token is None), key=lambda s: s.id)


def _use_current_volume(observed: Observed, volumes: tuple[EbsVolume, ...], current: EbsVolume) -> Step:
    step = _attach_step(observed, volumes, current)
    if step:
        return step
    assert observed.device is not None
    if observed.filesystem is None:
        return Refuse(f"volume {current.id} is the job's volume but has no file system; it is not formatted")
    if observed.lease.writer != observed.lease.token:
        return Claim()
    if observed.mounted is None:
        return Mount(observed.device)
    if current.tag_state != LIVE or current.token is None:
        return MarkLive(current.id)
    if not observed.grown:
        return Grow()
    if not observed.filled:
        return Fill()
    return _tidy(observed, volumes, current)


def _move(observed: Observed, volumes: tuple[EbsVolume, ...], current: EbsVolume) -> Step:
    """Migrate the current volume from another zone: snapshot, copy, attach, mount, commit."""
    candidate = _candidate(observed, volumes, current.id)
    if candidate:
        return _attach_step(observed, volumes, candidate) or _mount_candidate(
            observed, candidate, blank=False
        )
    if current.state != "available":
        holder = f" to {current.instance}" if current.instance else ""
        state = current.attachment or current.state
        return Wait(f"volume {current.id} in {current.zone} to be detached ({state}{holder})")
    usable = [s for s in observed.snapshots if _is_up_to_date(s, current, observed.lease)]
    completed = [s for s in usable if s.state == "completed"]
    if completed:
        source, failed = min(completed, key=lambda s: s.id), _failed(observed, volumes)
        return _refuse_after_failures(failed) or CreateVolume(
            source.id, current.id, source.size_gib, len(failed)
        )
    if usable:
        return Wait(
            f"snapshot {usable[0].id} of {current.id} to be completed ({usable[0].progress or 'started'})"
        )
    mine = [s.id for s in observed.snapshots if s.token == observed.lease.token and s.state == "error"]
    return _refuse_after_failures(mine) or CreateSnapshot(current.id)


def _failed(observed: Observed, volumes: tuple[EbsVolume, ...]) -> list[str]:
    """Return the volumes of this lease that ended in state ``error``."""
    return [
        v.id
        for v in volumes
        if v.token == observed.lease.token and v.tag_state == PREPARING and v.state == "error"
    ]


def _refuse_after_failures(failed: list[str]) -> Refuse | None:
    """Return a refusal after three failures; the usual cause is a KMS key that the role may not use."""
    if len(failed) < _MAX_ATTEMPTS:
        return None
    return Refuse(
        f"{', '.join(sorted(failed))} ended in state error: see the EBS console for the cause, and check "
        "that the role may use the volume's KMS key; the job's volume is unchanged"
    )


def _is_up_to_date(snapshot: Snapshot, current: EbsVolume, lease: Lease) -> bool:
    """Return whether the snapshot has all data: the current volume was not mounted since."""
    return (
        snapshot.source == current.id
        and snapshot.token is not None
        and lease.writer < snapshot.token <= lease.token
        and snapshot.state != "error"
    )


def _candidate(observed: Observed, volumes: tuple[EbsVolume, ...], source: str | None) -> EbsVolume | None:
    """Return the volume that was created under this lease to become the current volume, if any.

    Candidates of earlier leases are never used: the instance that created one may still delete it.
    """
    candidates = [
        v
        for v in volumes
        if v.token == observed.lease.token
        and v.tag_state == PREPARING
        and v.source == source
        and v.zone == observed.zone
        and v.state not in (*DELETED_STATES, "error")
        and v.id != observed.lease.volume
    ]
    return min(candidates, key=lambda v: v.id) if candidates else None


def _attach_step(observed: Observed, volumes: tuple[EbsVolume, ...], volume: EbsVolume) -> Step | None:
    """Return the next step to attach a volume of this zone; None if it is ready to mount.

    Ready: attached, its device is visible and the mount point is free.
    """
    if observed.mounted == FOREIGN:
        return Wait("the mount point to be free: a file system that is not a volume of this job is mounted")
    if observed.mounted is not None and observed.mounted != volume.id:
        return Unmount()
    if volume.state == "creating":
        return Wait(f"volume {volume.id} to be created")
    if volume.instance is None and volume.state == "available":
        used = {v.device for v in volumes if v.instance == observed.instance}
        return Attach(volume.id, next(name for name in observed.devices if name not in used))
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
                f"volume {candidate.id}, a copy of {candidate.source}, has no file system; neither is deleted"
            )
        return Format(observed.device)
    if observed.mounted is None:
        return Mount(observed.device)
    return Commit(candidate.id)


def _tidy(observed: Observed, volumes: tuple[EbsVolume, ...], current: EbsVolume) -> Step:
    """Remove leftovers of earlier leases, crashes and this migration; the current volume is committed."""
    leftovers = []
    for volume in sorted(volumes, key=lambda v: v.id):
        if volume.id == current.id or volume.token is None or volume.token > observed.lease.token:
            continue
        if volume.instance is None:
            if volume.state != "creating":
                return Discard("volume", volume.id)
        elif volume.instance == observed.instance and volume.attachment == "attached":
            return Discard("detach", volume.id)
        leftovers.append(volume.id)
    for snapshot in superfluous_snapshots(observed.snapshots, current, observed.lease.token):
        return Discard("snapshot", snapshot.id)
    return Ready(current.id, tuple(leftovers))


def superfluous_snapshots(
    snapshots: Iterable[Snapshot], current: EbsVolume, token: int
) -> tuple[Snapshot, ...]:
    """Return the snapshots that the holder of ``token`` may delete, the oldest first.

    The newest snapshot of the current volume or its source is kept, as a backup and as the base of the next
    incremental one; until it is completed, the newest completed one is kept too.
    """
    deletable = [s for s in snapshots if s.token is not None and s.token <= token]
    deletable.sort(key=lambda s: (s.token or 0, s.started, s.id))
    retained: set[str] = set()
    for snapshot in reversed(deletable):
        is_completed = snapshot.state == "completed"
        if snapshot.source in (current.id, current.source) and (
            is_completed or (snapshot.state == "pending" and not retained)
        ):
            retained.add(snapshot.id)
            if is_completed:
                break
    return tuple(s for s in deletable if s.id not in retained)
