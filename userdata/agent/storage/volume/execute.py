"""Carry out the planner's steps until the volume is ready; detach and release the volume."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from contracts.agent.names import VOLUME_DEVICES
from userdata.agent.lease.holder import LeaseHolder
from userdata.agent.lease.store import DynamoLease, Lease
from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import (
    AgentError,
    HostError,
    LeaseLostError,
    RefusedError,
    TransientError,
    WorkCancelledError,
)
from userdata.agent.machine.host import Host
from userdata.agent.storage.volume import growth, model
from userdata.agent.storage.volume.ebs import AwsEbs
from userdata.agent.storage.volume.model import HeldVolume, Observed, Step
from userdata.agent.storage.volume.plan import plan, target_volume

_POLL_INTERVAL_SECONDS: Final = 5.0
MAX_ATTACHMENTS: Final = 2
"""Attachments that do not end, each at a device name of its own, after which the host is at fault: its kernel
may hold a name that AWS takes for free. Source: kubernetes-sigs/aws-ebs-csi-driver, issues 795 and 1801."""


class DatasetFiller(Protocol):
    """Fills the mounted volume with its dataset."""

    def is_complete(self) -> bool:
        """Return whether the dataset is complete."""
        ...

    def fill(self, keep_alive: Callable[[], None]) -> None:
        """Copy missing files and mark the dataset complete; calls ``keep_alive`` every few seconds."""
        ...


@dataclass(frozen=True)
class MountContext:
    """The instance, its zone, the mount point and the timeout of a wait (seconds).

    ``shape`` is the volume's configuration in the stack file; ``devices`` are the allowed device names.
    """

    instance: str
    zone: str
    mount_point: Path
    wait_seconds: float
    shape: growth.VolumeShape = growth.UNCHANGED
    devices: tuple[str, ...] = VOLUME_DEVICES


@dataclass(eq=False)
class Executor:
    """One run of ``volume up``; it observes the state again before each step.

    Args:
        on_poll: called every few seconds while waiting and before each step; raises `WorkCancelledError` to
            cancel.
        prepared: returns the source snapshot of a job's first volume, None for a blank volume.
        unclaimed: returns the volumes or snapshots that may be meant for a job without a volume.
    """

    context: MountContext
    ebs: AwsEbs
    leases: DynamoLease
    host: Host
    filler: DatasetFiller
    clock: Clock
    on_poll: Callable[[], None] = lambda: None
    prepared: Callable[[], str | None] = lambda: None
    unclaimed: Callable[[], tuple[str, ...]] = lambda: ()

    def __post_init__(self) -> None:
        self._lease_holder = LeaseHolder(self.leases, self.clock, self.on_poll, self.context.wait_seconds)
        self._lease = Lease(0, None, 0)
        self._grown = False
        self.growth_error = ""
        """Why the volume has not its configured shape yet, by the last `up`; empty if it has."""
        self._target: str | None = None
        """The volume to mount, at the last observation."""
        # Descriptions lag: until they catch up, snapshots that this run created are added and deleted
        # resources are left out.
        self._pending_snapshots: dict[str, model.Snapshot] = {}
        self._deleted: set[str] = set()
        self._stuck_devices: set[str] = set()
        """Device names at which the volume did not arrive."""
        self._local_volumes: set[str] = set()
        """Volumes that were attached to this instance."""

    @property
    def token(self) -> int:
        """The token of the lease; 0 before it is acquired."""
        return self._lease.token

    def up(self, is_wanted: Callable[[], bool] = lambda: True) -> HeldVolume:
        """Attach, mount and fill the job's volume on this instance.

        Args:
            is_wanted: called once the lease is acquired: its last holder may have ended the job.

        Raises:
            WorkCancelledError: the volume is not needed here any more. Volume and lease have been released;
                the next migration removes leftovers, as after a crash.
            RefusedError: only an operator can resolve the state.
            LeaseLostError: another instance holds the lease; its resources were not changed.
            HostError: the volume does not arrive on this host; volume and lease have been released.
            AgentError: a step or a wait took longer than ``wait_seconds``.
        """
        self._lease = self._lease_holder.acquire()
        try:
            if not is_wanted():
                raise WorkCancelledError("the job has ended")
            return self._attach_and_mount()
        except (WorkCancelledError, LeaseLostError):
            self._release_all()
            raise
        except HostError:
            with contextlib.suppress(AgentError):  # then the lease expires
                self._release_all()
            raise

    def _attach_and_mount(self) -> HeldVolume:
        last_step: Step | None = None
        last_done: Step | None = None
        step_started_at = self.clock.monotonic()
        while True:
            self.renew_if_due()
            step = self._next()
            self.on_poll()
            if isinstance(step, model.Ready):
                log.info("volume ready", volume=step.volume, token=self._lease.token, left=step.leftovers)
                return HeldVolume(self._lease.token, step.volume)
            if isinstance(step, model.Refuse):
                raise RefusedError(step.reason)
            if step is not None and step != last_step:
                last_step, step_started_at = step, self.clock.monotonic()
                log.info("volume step", step=type(step).__name__, detail=str(step))
            elif self.clock.monotonic() - step_started_at > self.context.wait_seconds:
                if self._detach_stuck():
                    step_started_at = self.clock.monotonic()
                    continue
                reason = last_step.reason if isinstance(last_step, model.Wait) else str(last_step)
                raise AgentError(f"timed out after {self.context.wait_seconds:.0f} s: {reason}")
            if step is None or isinstance(step, model.Wait) or not self._do(step) or step == last_done:
                # The same step again right after it was done: descriptions lag.
                self.clock.sleep(_POLL_INTERVAL_SECONDS)
            last_done = step

    def down(self, held_volume: HeldVolume) -> None:
        """Delete leftovers, unmount, detach, wait until the volume is detached, then release the lease.

        The next holder then finds the volume detached with all data written. Without the lease no leftovers
        are deleted, but the volume is still detached: its new holder waits for it.

        Raises:
            AgentError: the volume is in use or not detached within ``wait_seconds``; the lease then expires.
        """
        self._lease, self._grown = Lease(held_volume.token, held_volume.volume, held_volume.token), True
        self._lease_holder.token = held_volume.token
        holds_lease = self._lease_holder.try_renew()
        if self.host.mounted(self.context.mount_point):
            while holds_lease and isinstance(step := self._next(), model.Discard) and self._do(step):
                pass
            self.host.unmount(self.context.mount_point)
        self._detach_and_release([held_volume.volume], holds_lease)

    def _detach_stuck(self) -> bool:
        """Detach a volume that does not arrive, for an attachment at another device; return whether it was.

        Raises:
            HostError: it has not arrived at several: another host may attach it.
        """
        try:
            volume = next((v for v in self.ebs.volumes() if v.id == self._target), None)
            if volume is None or volume.instance != self.context.instance or volume.attachment != "attaching":
                return False
            self.ebs.detach(volume.id, self.context.instance)
        except TransientError as error:
            log.info("detach delayed", error=str(error))
            return True
        log.error("attachment does not end", volume=volume.id, device=volume.device)
        self._stuck_devices.add(volume.device or "")
        if len(self._stuck_devices) >= MAX_ATTACHMENTS:
            devices = ", ".join(sorted(self._stuck_devices))
            raise HostError(f"volume {volume.id} does not leave attaching at {devices}: the host is at fault")
        return True

    def _release_all(self) -> None:
        """Detach all local volumes, then release the lease."""
        holds_lease = self._lease_holder.try_renew()
        source = self.host.mounted(self.context.mount_point)
        if source and source in {self.host.device_of(volume) for volume in self._local_volumes}:
            self.host.unmount(self.context.mount_point)
        self._detach_and_release(sorted(self._local_volumes), holds_lease)

    def _detach_and_release(self, volumes: Collection[str], holds_lease: bool) -> None:
        started = self.clock.monotonic()
        while busy := [volume for volume in volumes if not self._is_detached(volume)]:
            if self.clock.monotonic() - started > self.context.wait_seconds:
                raise AgentError(
                    f"timed out after {self.context.wait_seconds:.0f} s: {busy[0]} is not detached"
                )
            if holds_lease:
                self.renew_if_due()
            self.clock.sleep(_POLL_INTERVAL_SECONDS / 5)
        if holds_lease:
            self._lease_holder.release()
        log.info("released", volumes=list(volumes), token=self._lease.token, lease_held=holds_lease)

    def _is_detached(self, volume: str) -> bool:
        try:
            described = next((v for v in self.ebs.volumes() if v.id == volume), None)
            if described is None or described.instance != self.context.instance:
                return True
            if described.attachment == "attached":
                self.ebs.detach(volume, self.context.instance)
        except TransientError as error:
            log.info("detach delayed", error=str(error))
        return False

    def renew_if_due(self) -> None:
        """Renew the lease if due."""
        self._lease_holder.renew_if_due()

    def _renew_and_poll(self) -> None:
        self.renew_if_due()
        self.on_poll()

    def _next(self) -> Step | None:
        """Return the next step for a new observation; None after a transient error."""
        try:
            return plan(self._observe())
        except TransientError as error:
            log.info("volume observation delayed", error=str(error))
            return None

    def _observe(self) -> Observed:
        volumes = tuple(v for v in self.ebs.volumes() if v.id not in self._deleted)
        listed = {s.id: s for s in self.ebs.snapshots()}
        snapshots = tuple(
            s for s in {**self._pending_snapshots, **listed}.values() if s.id not in self._deleted
        )
        context = self.context
        self._local_volumes |= {v.id for v in volumes if v.instance == context.instance}
        observed = Observed(
            context.instance, context.zone, self._lease, volumes, snapshots, None, None, None, False
        )
        target = self._target = target_volume(observed)
        attached = {v.id for v in volumes if v.instance == context.instance and v.attachment == "attached"}
        device = self.host.device_of(target) if target in attached and target else None
        source = self.host.mounted(context.mount_point)
        mounted = None
        if source:
            # Descriptions may lag; the serial number identifies a volume's device.
            devices = {self.host.device_of(v.id): v.id for v in volumes}
            mounted = devices.get(source, model.FOREIGN)
        return replace(
            observed,
            device=device,
            filesystem=self.host.filesystem(device) if device else None,
            mounted=mounted,
            filled=mounted is not None and mounted == target and self.filler.is_complete(),
            grown=self._grown,
            prepared=self.prepared() if self._lease.volume is None else None,
            unclaimed=self.unclaimed() if observed.is_first_volume else (),
            devices=tuple(name for name in context.devices if name not in self._stuck_devices),
        )

    def _do(self, step: Step) -> bool:
        """Carry out one step; return False after a transient error."""
        try:
            self._carry_out(step)
        except TransientError as error:
            log.info("volume step delayed", error=str(error))
            return False
        return True

    def _carry_out(self, step: Step) -> None:
        ebs, context, token = self.ebs, self.context, self._lease.token
        match step:
            case model.CreateVolume():
                ebs.create_volume(context.zone, token, context.instance, step)
            case model.CreateSnapshot(volume):
                snapshot = ebs.create_snapshot(volume, token)
                self._pending_snapshots[snapshot] = model.Snapshot(snapshot, "pending", volume, token)
            case model.Attach(volume, device):
                self._local_volumes.add(volume)
                ebs.attach(volume, context.instance, device)
            case model.Format(device):
                self._try(device, lambda: self.host.make_filesystem(device))
            case model.Mount(device):
                self._try(device, lambda: self.host.mount(device, context.mount_point))
            case model.Unmount():
                self.host.unmount(context.mount_point)
            case model.Claim():
                self.leases.claim(token)
                self._lease = replace(self._lease, writer=token)
            case model.Commit(volume):
                self.leases.commit(token, volume)
                self._lease = Lease(token, volume, token)
            case model.Adopt(volume, new_token):
                self.leases.adopt(token, new_token, volume)
                self._lease, self._lease_holder.token = Lease(new_token, volume, new_token - 1), new_token
            case model.MarkLive(volume):
                ebs.mark_live(volume, token)
            case model.Grow():
                self._grow()
            case model.Fill():
                self.filler.fill(self._renew_and_poll)
            case model.Discard():
                self._discard(step)
            case _:
                raise AssertionError(f"step cannot be carried out: {step}")

    def _try(self, device: str, act: Callable[[], None]) -> None:
        """Act on the volume to mount; if that fails on a candidate, the next start takes another one.

        The tag counts over restarts and instances (`plan`), and says why. A mount also fails after a kill
        within mkfs.
        """
        try:
            act()
        except AgentError as error:
            self.host.filesystem(device)  # TransientError: a device that has gone says nothing of its volume
            if self._target is not None and self._target != self._lease.volume:
                with contextlib.suppress(AgentError):  # then the next start tries this one again
                    self.ebs.mark_failed(self._target, str(error))
            raise

    def _grow(self) -> None:
        context = self.context
        current = next((v for v in self.ebs.volumes() if v.id == self._lease.volume), None)
        self.growth_error = "EC2 does not describe the volume"
        if current is not None:
            mount_point = context.mount_point
            self.growth_error = growth.apply_shape(
                current, context.shape, self.ebs, self.host, self.clock, mount_point, self._renew_and_poll
            )
        self._grown = True

    def _discard(self, step: model.Discard) -> None:
        if step.kind == "detach":
            self.ebs.detach(step.id, self.context.instance)
            return
        delete = self.ebs.delete_volume if step.kind == "volume" else self.ebs.delete_snapshot
        delete(step.id)  # or not: what EC2 refuses is not tried again
        self._deleted.add(step.id)
        self._pending_snapshots.pop(step.id, None)
