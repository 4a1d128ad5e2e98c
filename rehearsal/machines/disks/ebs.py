"""EBS with delays, zone checks and content, patched into moto.

moto's volumes and snapshots are ready at once, attach across zones and twice, and have no content. Here a
volume with a file system is a folder, a snapshot a copy of it at the time of ``CreateSnapshot``. This applies
to volumes that clients create; the root volumes of instances are moto's.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias
from unittest import mock

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError, VolumeInUseError
from moto.ec2.models.elastic_block_store import EBSBackend, Snapshot, Volume
from moto.ec2.responses.elastic_block_store import ElasticBlockStore
from moto.ec2.utils import generic_filter

from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.fixes.speedups.cached_responses import changed
from rehearsal.machines.disks.blocks import Blocks
from rehearsal.machines.journal import Entry, Journal, Kind
from rehearsal.machines.times import Times

_PROGRESS_STEPS: Final = 10
_Call: TypeAlias = Callable[[Any], ActionResult]
"""An API call as moto answers it."""


class Disks:
    """Volumes that clients created, their snapshots and contents, below ``folder``."""

    def __init__(self, folder: Path, times: Times, journal: Journal) -> None:
        self._volumes = folder / "volumes"
        self._snapshots = folder / "snapshots"
        self._times = times
        self._journal = journal
        self._blocks = Blocks()
        self._ours: dict[str, Any] = {}
        self._initialization_rates: dict[str, float] = {}
        self._by_client_token: dict[str, str] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = itertools.count()
        self.now = 0.0
        """Current simulated time in epoch seconds."""
        self.copying_until = 0.0
        """Completion time of the last snapshot of an unmounted volume."""
        self.mounted: set[str] = set()
        """Volumes that an instance has mounted."""

    def settle(self, now: float) -> None:
        """Process the events that are due by ``now``."""
        while self._events and self._events[0][0] <= now:
            self.now, _, happen = heapq.heappop(self._events)
            happen()
            changed()
        self.now = now

    def holder(self, volume: str) -> str | None:
        """Return the instance that a volume is attached to (not attaching or detaching)."""
        attachment = self._ours[volume].attachment if volume in self._ours else None
        return attachment.instance.id if attachment and attachment.status == "attached" else None

    def folder(self, volume: str) -> Path:
        """Return the content folder of a volume; it does not exist before the volume has a file system."""
        return self._volumes / volume

    def format(self, volume: str) -> None:
        """Create an empty file system; raise ``LocalCloudError`` if there is one."""
        if self.folder(volume).exists():
            raise LocalCloudError(f"volume {volume} already has a file system, formatting would erase it")
        self.folder(volume).mkdir(parents=True)

    def wrote(self, volume: str, mib: float) -> None:
        """Record MiB written to a volume, which its next snapshot copies."""
        self._blocks.wrote(volume, mib)

    def first_read(self, volume: str, mib: float) -> float:
        """Return the seconds of a first read; 0 unless the volume was created from a snapshot."""
        rate = self._initialization_rates.get(volume)
        return 0.0 if rate is None else self._times.first_read(mib, rate)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Patch moto's EBS while the body runs."""
        with contextlib.ExitStack() as stack:
            for owner, name, patched in (
                (ElasticBlockStore, "create_volume", self._create),
                (ElasticBlockStore, "create_snapshot", self._copy),
                (ElasticBlockStore, "attach_volume", self._attach),
                (ElasticBlockStore, "detach_volume", self._detach),
                (ElasticBlockStore, "delete_volume", self._delete),
                (ElasticBlockStore, "delete_snapshot", self._delete_snapshot),
                (EBSBackend, "detach_volume", self._let_go),
                (EBSBackend, "describe_snapshots", _without_images),
            ):
                patch = mock.patch.object(owner, name, _patched(patched, getattr(owner, name)))
                stack.enter_context(patch)
            for kind, name, attribute in (
                (Volume, "status", "local_state"),
                (Snapshot, "progress", "local_progress"),
            ):
                stack.enter_context(mock.patch.object(kind, name, _own_or(attribute, getattr(kind, name))))
            yield

    # API calls of clients. Source of the codes: EC2 API reference, "Error codes".

    def _create(self, call: Any, create: _Call) -> ActionResult:
        volume_before = self._ours.get(self._by_client_token.get(call._get_param("ClientToken") or "", ""))
        if volume_before is not None:
            return ActionResult(volume_before)
        source = call._get_param("SnapshotId")
        if source and call.ec2_backend.get_snapshot(source).status != "completed":
            raise EC2ClientError("IncorrectState", f"Snapshot {source} is not completed.")
        result = create(call)
        volume: Any = result.result
        self._ours[volume.id] = volume
        self._by_client_token[call._get_param("ClientToken") or volume.id] = volume.id
        self._blocks.created(volume.id, int(volume.size), source or "")
        if source:
            self._initialization_rates[volume.id] = float(call._get_param("VolumeInitializationRate") or 0)
        if source and (self._snapshots / source).exists():
            shutil.copytree(self._snapshots / source, self.folder(volume.id), symlinks=True)
        volume.local_state = "creating"
        self._later(self._times.create, lambda: setattr(volume, "local_state", None))
        self._note("created", volume, snapshot=source or "")
        return result

    def _copy(self, call: Any, create: _Call) -> ActionResult:
        result = create(call)
        snapshot: Any = result.result
        source = self.folder(snapshot.volume.id)
        if source.exists():
            shutil.copytree(source, self._snapshots / snapshot.id, symlinks=True)
        snapshot.status, snapshot.local_progress = "pending", "0%"
        seconds = self._times.snapshot_of(self._blocks.start_snapshot(snapshot.id, snapshot.volume.id))
        for step in range(1, _PROGRESS_STEPS):
            progress = f"{100 * step // _PROGRESS_STEPS}%"
            self._later(
                seconds * step / _PROGRESS_STEPS,
                lambda progress=progress: setattr(snapshot, "local_progress", progress),  # type: ignore[misc]
            )
        self._later(seconds, lambda: self._completed(snapshot))
        if snapshot.volume.id not in self.mounted:
            self.copying_until = self.now + seconds
        self._note("snapshot", snapshot.volume, snapshot=snapshot.id)
        return result

    def _completed(self, snapshot: Any) -> None:
        snapshot.status, snapshot.local_progress = "completed", None
        self._note("copied", snapshot.volume, snapshot=snapshot.id)

    def _attach(self, call: Any, attach: _Call) -> ActionResult:
        backend, instance_id = call.ec2_backend, call._get_param("InstanceId")
        volume, instance = (
            backend.get_volume(call._get_param("VolumeId")),
            backend.get_instance(instance_id),
        )
        if instance.state not in ("pending", "running", "stopped"):
            raise EC2ClientError("IncorrectState", f"Instance '{instance_id}' is {instance.state}.")
        zone = instance.placement.zone
        if volume.zone.name != zone:
            raise EC2ClientError(
                "InvalidVolume.ZoneMismatch",
                f"The volume '{volume.id}' is not in the same availability zone as instance '{instance_id}'",
            )
        if volume.attachment is not None:
            raise VolumeInUseError(volume.id, volume.attachment.instance.id)
        if volume.status != "available":
            raise EC2ClientError("IncorrectState", f"Volume '{volume.id}' is {volume.status}.")
        result = attach(call)
        attachment: Any = volume.attachment
        attachment.status = "attaching"

        def arrived() -> None:
            if attachment.status == "attaching":  # its instance may have terminated since
                attachment.status = "attached"

        self._later(self._times.attach, arrived)
        self._note("attaching", volume, instance=instance_id)
        return result

    def _detach(self, call: Any, detach: _Call) -> ActionResult:
        volume = call.ec2_backend.get_volume(call._get_param("VolumeId"))
        if volume.id not in self._ours:
            return detach(call)
        attachment = volume.attachment
        if attachment is None or attachment.status != "attached":
            raise EC2ClientError("IncorrectState", f"Volume '{volume.id}' is not attached.")
        if volume.id in self.mounted:
            raise LocalCloudError(f"volume {volume.id} is detached while it is mounted")
        self._leave(volume, self._times.detach)
        return ActionResult({"VolumeId": volume.id, "State": "detaching"})

    def _delete(self, call: Any, delete: _Call) -> ActionResult:
        volume = self._ours.get(call._get_param("VolumeId"))
        if volume is not None and volume.status == "creating":
            raise EC2ClientError("IncorrectState", f"Volume '{volume.id}' is creating.")
        result = delete(call)
        if volume is not None:
            del self._ours[volume.id]
            shutil.rmtree(self.folder(volume.id), ignore_errors=True)
            self._note("deleted", volume)
        return result

    def _delete_snapshot(self, call: Any, delete: _Call) -> ActionResult:
        result = delete(call)
        self._blocks.discarded(call._get_param("SnapshotId"))
        shutil.rmtree(self._snapshots / call._get_param("SnapshotId"), ignore_errors=True)
        return result

    # State changes over time.

    def _let_go(self, backend: EBSBackend, detach: Callable[..., Any], volume_id: str, *rest: Any) -> Any:
        # Called for a terminating instance; moto would detach its volumes at once.
        volume = self._ours.get(volume_id)
        if volume is None:
            return detach(backend, volume_id, *rest)
        if volume.attachment.status != "detaching":
            self._leave(volume, self._times.dying)
        return volume.attachment

    def _leave(self, volume: Any, seconds: float) -> None:
        attachment = volume.attachment
        attachment.status = "detaching"

        def detached() -> None:
            attachment.status = "detached"
            attachment.instance.block_device_mapping.pop(attachment.device, None)
            volume.attachment = None
            self._note("free", volume, instance=attachment.instance.id)

        self._later(seconds, detached)

    def _later(self, seconds: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._serial), happen))

    def _note(self, kind: Kind, volume: Any, instance: str = "", snapshot: str = "") -> None:
        self._journal.note(Entry(self.now, kind, instance, volume.id, str(volume.zone.name), snapshot))


def _patched(patched: Callable[..., Any], original: Any) -> Any:
    """Return a method, as moto wants it, that passes its own original as the second argument."""

    def method(owner: Any, *args: Any, **named: Any) -> Any:
        return patched(owner, original, *args, **named)

    return method


def _without_images(
    backend: EBSBackend,
    describe: Callable[..., list[Snapshot]],
    snapshot_ids: list[str] | None = None,
    filters: Any = None,
) -> list[Snapshot]:
    # moto does not filter by owner: it would scan the 1,300 snapshots of Amazon's images each time.
    if snapshot_ids:
        return describe(backend, snapshot_ids, filters)
    return generic_filter(filters, [s for s in backend.snapshots.values() if s.from_ami is None])


def _own_or(name: str, original: property) -> property:
    """Return a property with the simulated value if there is one, else moto's."""

    def value(thing: Any) -> Any:
        override = getattr(thing, name, None)
        assert original.fget is not None
        return original.fget(thing) if override is None else override

    return property(value)
