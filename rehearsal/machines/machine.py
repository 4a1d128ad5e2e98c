"""The simulated host and metadata service of an instance."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from contracts.agent.names import UNIT_RUN, UNIT_VOLUME
from pulumi_on_moto.emulator import ACCOUNT, AwsClients
from pulumi_on_moto.errors import LocalCloudError
from rehearsal.machines.disks.ebs import Disks
from rehearsal.machines.journal import Entry, Journal, Kind
from rehearsal.machines.scheduler import Scheduler, SimulatedClock
from rehearsal.machines.shared import Shared
from rehearsal.results.moves import Contents
from userdata.agent.aws.imds import (
    GROUP_TAG,
    IDENTITY,
    LIFECYCLE_STATE,
    PRIVATE_ADDRESS,
    PURCHASE_OPTION,
    SPOT_ACTION,
    Metadata,
    MetadataDocument,
)
from userdata.agent.machine.host import Argv, ProcessInfo, Variables

if TYPE_CHECKING:
    from rehearsal.machines.process import TrainingProcess, TrainingProfile

RUN_PID: Final = 1000
"""PID of the agent's ``run``; its training processes have higher ones."""

_DEVICE: Final = "/dev/disk/by-id/"


class InstanceMetadata(Metadata):
    """The metadata service of an instance, from moto's description and the notice."""

    def __init__(self, clock: SimulatedClock, clients: AwsClients, instance_id: str) -> None:
        super().__init__(clock)
        self._time = clock
        response = clients("ec2").describe_instances(InstanceIds=[instance_id])
        self._instance: dict[str, Any] = response["Reservations"][0]["Instances"][0]
        self._region = clients.region
        self.deadline: float | None = None
        """Deadline of the interruption notice, in epoch seconds."""
        self.is_released = False
        """Whether its group is terminating it."""

    def get(self, path: str) -> MetadataDocument | None:
        """See ``Metadata``."""
        text = self._document(path)
        return None if text is None else MetadataDocument(text, self._time.wall())

    def _document(self, path: str) -> str | None:
        tags = {tag["Key"]: tag["Value"] for tag in self._instance.get("Tags", [])}
        group = tags.get("aws:autoscaling:groupName")
        if path == IDENTITY:
            return json.dumps(
                {
                    "instanceId": self._instance["InstanceId"],
                    "accountId": ACCOUNT,
                    "availabilityZone": self._instance["Placement"]["AvailabilityZone"],
                    "region": self._region,
                    "instanceType": self._instance["InstanceType"],
                    "pendingTime": self._instance["LaunchTime"].strftime("%Y-%m-%dT%H:%M:%SZ"),
                }
            )
        if path == SPOT_ACTION and self.deadline is not None:
            at = datetime.fromtimestamp(self.deadline, UTC)
            return json.dumps({"action": "terminate", "time": at.strftime("%Y-%m-%dT%H:%M:%SZ")})
        if path == LIFECYCLE_STATE and group:
            # The target lifecycle state: InService also during a launch hook.
            return "Terminated" if self.is_released else "InService"
        if path == PURCHASE_OPTION:
            return str(self._instance.get("InstanceLifecycle", "on-demand"))
        if path == GROUP_TAG:
            return group
        if path == PRIVATE_ADDRESS:
            return str(self._instance["PrivateIpAddress"])
        return None


@dataclass(frozen=True, slots=True)
class NodeContext:
    """Objects that the nodes of a rehearsal share."""

    clients: AwsClients
    scheduler: Scheduler
    disks: Disks
    shared: Shared
    journal: Journal
    profile: TrainingProfile


class SimulatedHost:
    """Devices, mounts, units and signals (``userdata.agent.machine.host.Host``) of one instance.

    A mounted volume is a symbolic link from the data directory to the volume's folder; so are mounts of EFS
    and datasets.
    """

    def __init__(self, instance_id: str, data: Path, context: NodeContext) -> None:
        self._instance = instance_id
        self._data = data
        self._disks = context.disks
        self._shared = context.shared
        self._file_systems: set[Path] = set()
        """Mount points of EFS access points."""
        self._journal = context.journal
        self._scheduler = context.scheduler
        self._revision = ""
        self.zone = ""
        self.launched: frozenset[str] = frozenset()
        """Volumes of the launch template."""
        self.fresh_mib = context.profile.dataset_gib * 1024
        """Data copied to a new volume, counted when its file system is created."""
        self.restart_volume: Callable[[], object] = lambda: None
        self.power_off: Callable[[float], None] = lambda seconds: None
        """Callback that powers the instance off after some seconds."""
        self.on_sigterm: Callable[[], None] | None = None
        """SIGTERM handler of ``run``; None while it does not run."""
        self.process: TrainingProcess | None = None

    # Disks.

    def device_of(self, volume: str) -> str | None:
        """See ``Host``."""
        is_here = volume in self.launched or self._disks.holder(volume) == self._instance
        return f"{_DEVICE}{volume}" if is_here else None

    def instance_stores(self) -> list[str]:
        """See ``Host``: none is simulated."""
        return []

    def filesystem(self, device: str) -> str | None:
        """See ``Host``."""
        volume = device.removeprefix(_DEVICE)
        return "xfs" if volume in self.launched or self._disks.folder(volume).exists() else None

    def make_filesystem(self, device: str) -> None:
        """See ``Host``."""
        volume = device.removeprefix(_DEVICE)
        self._disks.format(volume)
        self._disks.wrote(volume, self.fresh_mib)

    def mounted(self, path: Path) -> str | None:
        """See ``Host``."""
        return f"{_DEVICE}{path.readlink().name}" if path.is_symlink() else None

    def mount(self, device: str, path: Path) -> None:
        """See ``Host``."""
        volume = device.removeprefix(_DEVICE)
        if self._disks.holder(volume) != self._instance:
            raise LocalCloudError(f"{self._instance} mounts {volume}, which is not attached to it")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(self._disks.folder(volume))
        self._disks.mounted.add(volume)
        self._note_contents("mounted", volume)

    def unmount(self, path: Path) -> None:
        """See ``Host``."""
        volume = path.readlink().name
        if path in self._file_systems:
            self._file_systems.discard(path)
            self._note("unmounted", volume, contents(path.readlink()))
            self._note("free", volume)
        else:
            self._note_contents("unmounted", volume)
            self._disks.mounted.discard(volume)
        path.unlink()

    def unmount_all(self) -> None:
        """Remove all mounts, as the termination does."""
        for path in (self._data, *sorted(self._file_systems)):
            if self.mounted(path):
                self.unmount(path)

    def wrote(self, mib: float) -> None:
        """Record MiB written below the data directory."""
        if self._data.is_symlink():
            self._disks.wrote(self._data.readlink().name, mib)
        elif self._file_systems:
            self._shared.written_mib += mib

    def first_read(self, mib: float) -> float:
        """Return the additional seconds of a first read from the mounted storage."""
        if self._data.is_symlink():
            return self._disks.first_read(self._data.readlink().name, mib)
        return self._shared.read(mib) if self._file_systems else 0.0

    def dataset_read(self, mib: float) -> float:
        """Return the seconds of the first read of a dataset volume of the launch template."""
        return self._shared.times.first_read(mib, 0.0) if self.launched else 0.0

    def capacity(self, device: str) -> int:
        """See ``Host``: unlimited."""
        return 2**50

    def grow(self, device: str, path: Path) -> None:
        """See ``Host``: a folder needs no growth."""

    def frozen(self, path: Path) -> AbstractContextManager[None]:
        """See ``Host``: only one task runs at a time."""
        return nullcontext()

    # Units and processes.

    def run(self, argv: Argv, timeout: float = 60, stdin: str = "", environment: Variables = None) -> str:
        """See ``Host``: creates folders on the volume; simulated git returns the fetched revision."""
        match list(argv):
            case ["install", "--directory", *_, path]:
                if Path(path).is_relative_to(self._data):
                    Path(path).mkdir(parents=True, exist_ok=True)
            case ["mkdir", "--parents", path]:
                Path(path).mkdir(parents=True, exist_ok=True)
            case ["mount", "-t", "efs", "-o", options, _, path]:
                self._mount_file_system(options, Path(path))
            case ["mount", "-t", _, "-o", _, device, path]:
                _link(Path(path), self._shared.dataset(device.removeprefix(_DEVICE)))
            case ["chown", "--recursive", _, _]:
                pass
            case ["runuser", "--user", _, "--", "git", "-C", _, command, *rest]:
                if command == "fetch":
                    self._revision = rest[-1]
                return self._revision if command == "rev-parse" else ""
            case ["id", "--user", _]:
                return "990"
            case ["rm", "--recursive", "--one-file-system", "--", path]:
                shutil.rmtree(path)
            case [("rm" | "chown" | "mv" | "getent" | "usermod" | "nft"), *_]:
                pass  # checkout folder, users and network are not simulated
            case ["systemctl", "restart", unit] if unit == UNIT_VOLUME:
                self.restart_volume()
            case ["shutdown", "--poweroff", minutes]:
                self.power_off(60.0 * int(minutes))
            case _:
                raise LocalCloudError(f"not supported on a simulated instance: {' '.join(argv)}")
        return ""

    def polling(self, on_poll: Callable[[], None]) -> AbstractContextManager[None]:
        """See ``Host``: commands take no simulated time."""
        return nullcontext()

    def main_pid(self, unit: str) -> int | None:
        """See ``Host``."""
        return RUN_PID if unit == UNIT_RUN and self.on_sigterm is not None else None

    def signal_group(self, pid: int, number: signal.Signals) -> None:
        """See ``Host``: the training process has no children."""
        self.signal(pid, number)

    def signal(self, pid: int, number: signal.Signals) -> None:
        """See ``Host``."""
        if pid == RUN_PID and number is signal.SIGTERM and self.on_sigterm is not None:
            self.on_sigterm()
        elif self.process is not None and pid == self.process.pid:
            self.process.signal(number)

    def processes(self) -> list[ProcessInfo]:
        """See ``Host``: the training process while it runs."""
        process = self.process
        if process is None or process.has_ended:
            return []
        return [
            ProcessInfo(process.pid, 0, "train", RUN_PID, process.pid, process.pid, 0, handles_sigterm=True)
        ]

    def _mount_file_system(self, options: str, path: Path) -> None:
        settings = dict(option.partition("=")[::2] for option in options.split(","))
        folder = self._shared.file_system(settings["accesspoint"])
        _link(path, folder)
        self._file_systems.add(path)
        self._note("mounted", folder.name, contents(folder))

    def _note_contents(self, kind: Kind, volume: str) -> None:
        self._note(kind, volume, contents(self._disks.folder(volume)), zone="")

    def _note(
        self, kind: Kind, volume: str, content: Contents | None = None, zone: str | None = None
    ) -> None:
        """Record an event of a volume, or of a file system in the instance's zone."""
        zone = self.zone if zone is None else zone
        self._journal.note(Entry(self._scheduler.now, kind, self._instance, volume, zone, contents=content))


def _link(path: Path, folder: Path) -> None:
    path.rmdir()  # the mount point, which has just been created
    path.symlink_to(folder)


def contents(folder: Path) -> Contents:
    """Return the content of a folder: digest of paths and bytes, not of times."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    whole = hashlib.sha256()
    for path in files:
        body = path.read_bytes()
        whole.update(f"{path.relative_to(folder).as_posix()}\0{len(body)}\0".encode())
        whole.update(body)
    return Contents(len(files), whole.hexdigest())
