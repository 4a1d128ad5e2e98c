"""The planner of the data volume: the next step as a pure function of the observation."""

from __future__ import annotations

from collections.abc import Iterable

from contracts.agent.names import VOLUME_NAME
from userdata.agent.lease.store import Lease
from userdata.agent.storage.volume.model import (
    DELETED_STATES,
    FOREIGN,
    LIVE,
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
    finished = [v for v in volumes if not v.is_candidate]
    if len(finished) > 1:
        names = ", ".join(sorted(v.id for v in finished))
        return Refuse(f"{names} all have this job's tags; remove the gpu-spot:job tag of all but one")
    if finished:
        tokens = [*(v.token for v in volumes), *(s.token for s in observed.snapshots)]
        return Adopt(finished[0].id, max(lease.token, *(t or 0 for t in tokens)) + 1)
    candidate = _candidate(observed, volumes, None)
    if candidate is None:
        failed = _failed(observed, volumes, None)
        return _refuse_after_failures(failed) or _create_first_volume(observed, len(failed))
    blank = observed.prepared is None and not _first_sources(observed)
    return _attach_step(observed, volumes, candidate) or _mount_candidate(observed, candidate, blank=blank)


def _create_first_volume(observed: Observed, attempt: int) -> Step:
    """Return the step to a job's first volume: from one of its snapshots, a prepared dataset, or blank."""
    sources = _first_sources(observed)
    if len(sources) > 1:
        listed = ", ".join(s.id for s in sources)
        return Refuse(f"{listed} all have this job's tags; remove the gpu-spot:job tag of all but one")
    for snapshot in sources:
        if snapshot.state == "pending":
            return Wait(f"snapshot {snapshot.id} to be completed ({snapshot.progress or 'started'})")
        if snapshot.state != "completed":
            return Refuse(f"{snapshot.id} is in state {snapshot.state}; no volume is created from it")
        return CreateVolume(snapshot.id, None, snapshot.size_gib, attempt)
    if observed.prepared is None and observed.unclaimed:
        return Refuse(
            f"no blank volume is created: {', '.join(observed.unclaimed)} has the name of data volumes "
            f"({VOLUME_NAME}) and belongs to no job; use `gpu-spot jobs adopt-volume JOB "
            f"{observed.unclaimed[0]}`, or `--blank` instead of the id to start at step 0; then "
            "`gpu-spot jobs retry JOB`"
        )
    return CreateVolume(observed.prepared, None, attempt=attempt)


def _first_sources(observed: Observed) -> list[Snapshot]:
    """Return the snapshots that a user tagged for the job, else the agent's newest."""
    tagged = [s for s in observed.snapshots if s.token is None]
    usable = [s for s in observed.snapshots if s.state != "error"]
    return sorted(tagged, key=lambda s: s.id) or sorted(usable, key=lambda s: s.started)[-1:]


def _use_current_volume(observed: Observed, volumes: tuple[EbsVolume, ...], current: EbsVolume) -> Step:
    if step := _attach_step(observed, volumes, current):
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
        source, failed = min(completed, key=lambda s: s.id), _failed(observed, volumes, current.id)
        return _refuse_after_failures(failed) or CreateVolume(
            source.id, current.id, source.size_gib, len(failed)
        )
    if usable:
        return Wait(
            f"snapshot {usable[0].id} of {current.id} to be completed ({usable[0].progress or 'started'})"
        )
    failed = [
        (s.id, "ended in state error")
        for s in observed.snapshots
        if s.source == current.id and s.state == "error" and _is_of_this_move(s, observed.lease)
    ]
    return _refuse_after_failures(failed) or CreateSnapshot(current.id)


def _failed(observed: Observed, volumes: tuple[EbsVolume, ...], source: str | None) -> list[tuple[str, str]]:
    """Return the failed candidates, of all leases since a volume was mounted, and what happened to each."""
    return [
        (v.id, "ended in state error" if v.state == "error" else str(v.tag_state))
        for v in volumes
        if v.has_failed and v.source == source and _is_of_this_move(v, observed.lease)
    ]


def _refuse_after_failures(failed: list[tuple[str, str]]) -> Refuse | None:
    """Return a refusal after three failures, over restarts and instances: each costs a volume.

    The usual causes are a KMS key that the role may not use, and an image without xfsprogs.
    """
    if len(failed) < _MAX_ATTEMPTS:
        return None
    listed = "; ".join(f"{name} {text}" for name, text in sorted(failed))
    return Refuse(
        f"{listed}: see the EBS console for the cause, and check that the role may use the volume's KMS key "
        "and that the image has xfsprogs; the job's volume is unchanged; delete these, then use `gpu-spot "
        "jobs retry JOB`"
    )


def _is_of_this_move(resource: EbsVolume | Snapshot, lease: Lease) -> bool:
    """Return whether a resource is newer than the last mount of the job's volume, and so up to date.

    Whoever deletes leftovers has become the writer before: it deletes none of these later.
    """
    return resource.token is not None and lease.writer < resource.token <= lease.token


def _is_up_to_date(snapshot: Snapshot, current: EbsVolume, lease: Lease) -> bool:
    """Return whether the snapshot has all data: the current volume was not mounted since."""
    return snapshot.source == current.id and snapshot.state != "error" and _is_of_this_move(snapshot, lease)


def _candidate(observed: Observed, volumes: tuple[EbsVolume, ...], source: str | None) -> EbsVolume | None:
    """Return the volume that this instance has created to become the current volume, if any.

    Those of other instances are never used: one may still be attached or formatted there.
    """
    candidates = [
        v
        for v in volumes
        if v.is_candidate
        and not v.has_failed
        and v.creator == observed.instance
        and _is_of_this_move(v, observed.lease)
        and v.source == source
        and v.zone == observed.zone
        and v.state not in DELETED_STATES
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
        attached = [v for v in volumes if v.instance == observed.instance]
        free = [name for name in observed.devices if name not in {v.device for v in attached}]
        if free:
            return Attach(volume.id, free[0])
        leftovers = sorted(v.id for v in attached if v.attachment == "attached")
        if leftovers:
            return Discard("detach", leftovers[0])
        return Wait(f"one of {', '.join(observed.devices)} to be free for volume {volume.id}")
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
    """Remove leftovers of earlier leases, crashes and this migration; the current volume is committed.

    Of a volume that was current its copy is there: another one was given this job's tags, and is left.
    """
    leftovers, sources = [], {v.source for v in volumes}
    for volume in sorted(volumes, key=lambda v: (v.token or 0, v.id)):  # an old one before its copy
        if volume.id == current.id or volume.token is None or volume.token > observed.lease.token:
            continue
        if volume.instance is None:
            if volume.state != "creating" and (volume.is_candidate or volume.id in sources):
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
