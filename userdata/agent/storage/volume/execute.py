"""Carry out the planner's steps until the volume is ready; and give the volume back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from contracts.agent.names import VOLUME_DEVICES
from userdata.agent.lease.holder import Tenure
from userdata.agent.lease.store import DynamoLease, Lease
from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError, LeaseLostError, RefusedError, UnwantedError
from userdata.agent.machine.host import Host
from userdata.agent.storage.volume import growth, model
from userdata.agent.storage.volume.ebs import AwsEbs, NotThereError, PassingError
from userdata.agent.storage.volume.model import HeldVolume, Observed, Step
from userdata.agent.storage.volume.plan import plan, target

_LOOK_EVERY: Final = 5.0


class Filler(Protocol):
    """The data set on the mounted volume."""

    def filled(self) -> bool:
        """Tell whether the data set is complete."""
        ...

    def fill(self, keep_alive: Callable[[], None]) -> None:
        """Copy what is missing and mark it complete; calls ``keep_alive`` at least every few seconds."""
        ...


@dataclass(frozen=True)
class MountPlace:
    """Where we are: the instance, its zone, the mount point, and how long one wait may last (seconds).

    ``shape`` is what the stack file says of the volume; ``devices`` are the names that it may be attached by.
    """

    instance: str
    zone: str
    mount_point: Path
    wait_seconds: float
    shape: growth.Shape = growth.AS_IT_IS
    devices: tuple[str, ...] = VOLUME_DEVICES


@dataclass(eq=False)
class Executor:
    """One run of ``volume up``; everything that it knows it looks up again before each step.

    Args:
        attend: called every few seconds, whatever is waited for, and before each step; raises `UnwantedError`
            when nothing more is to be brought here.
        prepared: returns the snapshot that a job's first volume is made from, None for a blank one.
    """

    place: MountPlace
    ebs: AwsEbs
    leases: DynamoLease
    host: Host
    filler: Filler
    clock: Clock
    attend: Callable[[], None] = lambda: None
    prepared: Callable[[], str | None] = lambda: None

    def __post_init__(self) -> None:
        self._tenure = Tenure(self.leases, self.clock, self.attend, self.place.wait_seconds)
        self._lease = Lease(0, None, 0)
        self._grown = False
        # Descriptions lag: a snapshot that we began is added, what we deleted is left out, until they catch
        # up.
        self._begun: dict[str, model.Snapshot] = {}
        self._gone: set[str] = set()
        self._here: set[str] = set()
        """What we attached or saw attached to us."""

    def up(self, is_wanted: Callable[[], bool] = lambda: True) -> HeldVolume:
        """Bring the job's volume here; return when it is mounted and filled.

        Args:
            is_wanted: asked once the lease is ours: its last holder may have ended the job.

        Raises:
            UnwantedError: it is not wanted here, or no longer; what was held has been given back, and what a
                move left is swept by the next one, as after a crash.
            RefusedError: only a person can resolve what was found.
            LeaseLostError: another instance has taken over; nothing of its was touched.
            AgentError: a step or a wait did not come to an end within ``wait_seconds``.
        """
        self._lease = self._tenure.take()
        try:
            if not is_wanted():
                raise UnwantedError("the job has ended")
            return self._bring()
        except (UnwantedError, LeaseLostError):
            self._give_back()
            raise

    def _bring(self) -> HeldVolume:
        current: Step | None = None
        done: Step | None = None
        since = self.clock.monotonic()
        while True:
            self.keep_alive()
            step = self._next()
            self.attend()
            if isinstance(step, model.Ready):
                log.info("volume ready", volume=step.volume, token=self._lease.token, left=step.left)
                return HeldVolume(self._lease.token, step.volume)
            if isinstance(step, model.Refuse):
                raise RefusedError(step.reason)
            if step is not None and step != current:
                current, since = step, self.clock.monotonic()
                log.info("volume step", step=type(step).__name__, detail=str(step))
            elif self.clock.monotonic() - since > self.place.wait_seconds:
                what = current.reason if isinstance(current, model.Wait) else str(current)
                raise AgentError(f"gave up after {self.place.wait_seconds:.0f} s: {what}")
            if step is None or isinstance(step, model.Wait) or not self._do(step) or step == done:
                self.clock.sleep(
                    _LOOK_EVERY
                )  # a step that is due again right after it was done: descriptions lag
            done = step

    def down(self, held: HeldVolume) -> None:
        """Sweep leftovers, unmount, detach, wait until the volume is free, and only then give the lease back.

        The next holder then finds the volume free, and all that was written is on it. Without the lease
        nothing is swept, but the volume is let go all the same: its new holder waits for it.

        Raises:
            AgentError: the volume is in use or not free in ``wait_seconds``; the lease runs out by itself.
        """
        self._lease, self._tenure.token = Lease(held.token, held.volume, held.token), held.token
        mine = self._tenure.is_mine()
        if self.host.mounted(self.place.mount_point):
            while mine and isinstance(step := self._next(), model.Discard) and self._do(step):
                pass
            self.host.unmount(self.place.mount_point)
        self._let_go([held.volume], mine)

    def _give_back(self) -> None:
        """Let go of all that is here, then of the lease."""
        mine = self._tenure.is_mine()
        source = self.host.mounted(self.place.mount_point)
        if source and source in {self.host.device_of(volume) for volume in self._here}:
            self.host.unmount(self.place.mount_point)
        self._let_go(sorted(self._here), mine)

    def _let_go(self, volumes: Collection[str], mine: bool) -> None:
        begun = self.clock.monotonic()
        while busy := [volume for volume in volumes if not self._free(volume)]:
            if self.clock.monotonic() - begun > self.place.wait_seconds:
                raise AgentError(f"gave up after {self.place.wait_seconds:.0f} s: {busy[0]} is not free")
            if mine:
                self.keep_alive()
            self.clock.sleep(_LOOK_EVERY / 5)
        if mine:
            self._tenure.give_back()
        log.info("released", volumes=list(volumes), token=self._lease.token, lease_held=mine)

    def _free(self, volume: str) -> bool:
        try:
            found = next((v for v in self.ebs.volumes() if v.id == volume), None)
            if found is None or found.instance != self.place.instance:
                return True
            if found.attachment == "attached":
                self.ebs.detach(volume, self.place.instance)
        except PassingError as error:
            log.info("release must wait", error=str(error))
        return False

    def keep_alive(self) -> None:
        """Renew the lease when it is due."""
        self._tenure.keep_alive()

    def _keep_on(self) -> None:
        self.keep_alive()
        self.attend()

    def _next(self) -> Step | None:
        """Plan from a fresh look; None when AWS would not let us look."""
        try:
            return plan(self._observe())
        except PassingError as error:
            log.info("volume look must wait", error=str(error))
            return None

    def _observe(self) -> Observed:
        volumes = tuple(v for v in self.ebs.volumes() if v.id not in self._gone)
        listed = {s.id: s for s in self.ebs.snapshots()}
        snapshots = tuple(s for s in {**self._begun, **listed}.values() if s.id not in self._gone)
        here = self.place
        self._here |= {v.id for v in volumes if v.instance == here.instance}
        seen = Observed(here.instance, here.zone, self._lease, volumes, snapshots, None, None, None, False)
        wanted = target(seen)
        attached = {v.id for v in volumes if v.instance == here.instance and v.attachment == "attached"}
        device = self.host.device_of(wanted) if wanted in attached and wanted else None
        source = self.host.mounted(here.mount_point)
        mounted = None
        if source:
            # Whatever the descriptions say by now, the device of a volume is known by its serial number.
            devices = {self.host.device_of(v.id): v.id for v in volumes}
            mounted = devices.get(source, model.FOREIGN)
        return replace(
            seen,
            device=device,
            filesystem=self.host.filesystem(device) if device else None,
            mounted=mounted,
            filled=mounted is not None and mounted == wanted and self.filler.filled(),
            grown=self._grown,
            prepared=self.prepared() if self._lease.volume is None else None,
            devices=here.devices,
        )

    def _do(self, step: Step) -> bool:
        """Carry one step out; False: AWS says not yet."""
        try:
            self._carry_out(step)
        except PassingError as error:
            log.info("volume step must wait", error=str(error))
            return False
        return True

    def _carry_out(self, step: Step) -> None:
        ebs, here, token = self.ebs, self.place, self._lease.token
        match step:
            case model.CreateVolume():
                ebs.create_volume(here.zone, token, step)
            case model.CreateSnapshot(volume):
                begun = ebs.create_snapshot(volume, token)
                self._begun[begun] = model.Snapshot(begun, "pending", volume, token)
            case model.Attach(volume, device):
                self._here.add(volume)
                ebs.attach(volume, here.instance, device)
            case model.Format(device):
                self.host.make_filesystem(device)
            case model.Mount(device):
                self.host.mount(device, here.mount_point)
            case model.Unmount():
                self.host.unmount(here.mount_point)
            case model.Claim():
                self.leases.claim(token)
                self._lease = replace(self._lease, writer=token)
            case model.Commit(volume):
                self.leases.commit(token, volume)
                self._lease = Lease(token, volume, token)
            case model.Adopt(volume, new_token):
                self.leases.adopt(token, new_token, volume)
                self._lease, self._tenure.token = Lease(new_token, volume, new_token - 1), new_token
            case model.MarkLive(volume):
                ebs.mark_live(volume, token)
            case model.Grow():
                self._grow()
            case model.Fill():
                self.filler.fill(self._keep_on)
            case model.Discard():
                self._discard(step)
            case _:
                raise AssertionError(f"no step to carry out: {step}")

    def _grow(self) -> None:
        here = self.place
        home = next((v for v in self.ebs.volumes() if v.id == self._lease.volume), None)
        if home is not None:
            place = here.mount_point
            growth.follow(home, here.shape, self.ebs, self.host, self.clock, place, self._keep_on)
        self._grown = True

    def _discard(self, step: model.Discard) -> None:
        if step.kind == "detach":
            self.ebs.detach(step.id, self.place.instance)
            return
        delete = self.ebs.delete_volume if step.kind == "volume" else self.ebs.delete_snapshot
        with contextlib.suppress(NotThereError):
            delete(step.id)
        self._gone.add(step.id)
        self._begun.pop(step.id, None)
