"""What the agent asks of the operating system, behind one interface that tests replace."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from userdata.agent.machine import freeze
from userdata.agent.machine.errors import AgentError, CommandError

_SYS_BLOCK = Path("/sys/block")
_MOUNT = re.compile(r"^mnt_id:\s+(\d+)", re.M)
_INSTANCE_STORE = "Amazon EC2 NVMe Instance Storage"
_ATTEND_EVERY: Final = 0.5
_LAST_GRACE: Final = 5.0
"""Seconds that a command has which nobody waits for any longer."""
_PROC = Path("/proc")
# The owner of the folder in /proc is no answer to whose it is: that is root where a process is not dumpable.
_STATUS = re.compile(r"^Uid:\s+(\d+).*^SigCgt:\s+([0-9a-f]+)", re.M | re.S)


@dataclass(frozen=True)
class Running:
    """A process as procfs shows it."""

    pid: int
    began: int
    """With the id it tells one process from all others of this boot."""
    name: str
    parent: int
    group: int
    session: int
    user: int
    """The id of the user that it runs as."""
    hears: bool
    """Whether it has a handler for SIGTERM."""


class Host(Protocol):
    """Block devices, mounts, units and signals of one machine."""

    def device_of(self, volume: str) -> str | None:
        """Return the path of the block device of an EBS volume (``vol-…``), or None while there is none."""
        ...

    def instance_stores(self) -> list[str]:
        """Return the devices of the instance store that nobody uses, the largest first."""
        ...

    def filesystem(self, device: str) -> str | None:
        """Return the type of the file system on ``device``, or None if the device is blank."""
        ...

    def make_filesystem(self, device: str) -> None:
        """Make an xfs file system on ``device``; refuses a device that has one."""
        ...

    def mounted(self, path: Path) -> str | None:
        """Return what is mounted at ``path`` and seen there, such as a device; None: nothing is."""
        ...

    def mount(self, device: str, path: Path) -> None:
        """Mount ``device`` at ``path``."""
        ...

    def unmount(self, path: Path) -> None:
        """Flush and unmount ``path`` and what is mounted below; fails while it is in use."""
        ...

    def capacity(self, device: str) -> int:
        """Return the size of a block device in bytes."""
        ...

    def grow(self, device: str, path: Path) -> None:
        """Let the file system of ``device``, mounted at ``path``, fill its device; nothing where it does."""
        ...

    def frozen(self, path: Path) -> AbstractContextManager[None]:
        """Hold the file system mounted at ``path`` still while a block runs; raises `AgentError`."""
        ...

    def run(self, argv: Sequence[str], stdin: str = "", environment: Mapping[str, str] | None = None) -> str:
        """Run a command and return its standard output; raises `AgentError` when it fails.

        ``environment`` is added to ours, for what must stand on no command line.
        """
        ...

    def attending(self, attend: Callable[[], None]) -> AbstractContextManager[None]:
        """Call ``attend`` before each command of the block and while one runs; what it raises ends both."""
        ...

    def main_pid(self, unit: str) -> int | None:
        """Return the main process of a systemd unit, or None when it is not running."""
        ...

    def signal_group(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to all of the process group that ``pid`` leads; one that is gone is no error."""
        ...

    def signal(self, pid: int, number: signal.Signals) -> None:
        """Send a signal; a process that is gone is no error."""
        ...

    def processes(self) -> list[Running]:
        """Return what runs on this machine; what has ended and waits for its parent does not."""
        ...


class SystemHost:
    """The real machine: sysfs, procfs and the usual commands."""

    def __init__(self, sys_block: Path = _SYS_BLOCK) -> None:
        self._sys_block = sys_block
        self._attend: Callable[[], None] | None = None

    def device_of(self, volume: str) -> str | None:
        """Find the device by its NVMe serial number, the volume id without its hyphen.

        On Nitro the name given at attachment (``/dev/sdf``) does not appear, and the order of NVMe devices
        changes between boots (EC2 user guide, "Map Amazon EBS volumes to NVMe device names").
        """
        serial = volume.replace("-", "")
        for device in sorted(self._sys_block.glob("nvme*n1")):
            try:
                if (device / "device" / "serial").read_text().strip() == serial:
                    return f"/dev/{device.name}"
            except OSError:
                continue  # detached while we looked
        return None

    def instance_stores(self) -> list[str]:
        """Find them by the model that they name (EC2 user guide, "NVMe instance store volumes").

        An EBS volume names itself another. Who stripes or encrypts a device holds it; partitions are folders.
        """
        found = []
        for device in sorted(self._sys_block.glob("nvme*n1")):
            try:
                model = (device / "device" / "model").read_text().strip()
                size = int((device / "size").read_text())
            except (OSError, ValueError):
                continue  # detached while we looked
            is_free = not any((device / "holders").glob("*")) and not any(device.glob(f"{device.name}p*"))
            if model == _INSTANCE_STORE and is_free:
                found.append((-size, f"/dev/{device.name}"))
        return [device for _, device in sorted(found)]

    def filesystem(self, device: str) -> str | None:
        """Ask blkid, low-level probing, so that no cache answers; it exits with 2 when it finds nothing."""
        done = self._run(["blkid", "--probe", "--match-tag", "TYPE", "--output", "value", device])
        if done.returncode == 0:
            return done.stdout.strip() or None
        if done.returncode == 2:
            return None
        raise AgentError(f"blkid {device}: exit {done.returncode}: {done.stderr.strip()}")

    def make_filesystem(self, device: str) -> None:
        """Run mkfs.xfs without ``-f``: it refuses a device with a known file system on it."""
        self.run(["mkfs.xfs", "-q", device])

    def mounted(self, path: Path) -> str | None:
        """Ask the kernel on which mount the path itself stands (proc(5), ``mnt_id`` and ``mountinfo``).

        A table of mounts also lists one that a later mount above it covers: what is written to its path does
        not go there.
        """
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise AgentError(f"{path}: {error.strerror}") from None
        try:
            number = _MOUNT.findall(Path(f"/proc/self/fdinfo/{handle}").read_text())[0]
        finally:
            os.close(handle)
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            front, _, back = line.partition(" - ")
            mount, _, _, _, place, *_ = front.split(" ")
            if mount == number:
                return _plain(back.split(" ")[1]) if _plain(place) == os.path.realpath(path) else None
        return None

    def mount(self, device: str, path: Path) -> None:
        """Mount without access times and without device files or set-user-id programs from the volume."""
        path.mkdir(parents=True, exist_ok=True)
        self.run(["mount", "-o", "noatime,nodev,nosuid", device, str(path)])

    def unmount(self, path: Path) -> None:
        """Flush first, so that the unmount is short; what is mounted below goes with it."""
        self.run(["sync", "--file-system", str(path)])
        self.run(["umount", "--recursive", str(path)])

    def capacity(self, device: str) -> int:
        """Ask the kernel, which NVMe tells when an EBS volume has grown."""
        return int(self.run(["blockdev", "--getsize64", device]))

    def grow(self, device: str, path: Path) -> None:
        """Grow xfs by its mount point, ext4 by its device; both while they are mounted."""
        if self.filesystem(device) == "xfs":
            self.run(["xfs_growfs", "-d", str(path)])
        else:
            self.run(["resize2fs", device])

    def frozen(self, path: Path) -> AbstractContextManager[None]:
        """Freeze with a guard; never the root file system, which is what an empty mount point is on."""
        if self.mounted(path) is None:
            raise AgentError(f"{path}: nothing is mounted there, so nothing is frozen")
        return freeze.frozen(self.run, path)

    def run(self, argv: Sequence[str], stdin: str = "", environment: Mapping[str, str] | None = None) -> str:
        """Run without a shell; the error names the command and the last line that it said."""
        done = self._run(argv, stdin, environment)
        if done.returncode:
            lines = [one for one in (done.stderr.strip() or done.stdout).splitlines() if _says(one)]
            raise CommandError(
                f"{argv[0]}: exit {done.returncode}: {lines[-1] if lines else 'no output'}", done.stderr
            )
        return done.stdout

    @contextlib.contextmanager
    def attending(self, attend: Callable[[], None]) -> Iterator[None]:
        """See ``Host``: a fetch may take a quarter of an hour, and a lease lives for two minutes."""
        before, self._attend = self._attend, attend
        try:
            yield
        finally:
            self._attend = before

    def main_pid(self, unit: str) -> int | None:
        """Ask systemd; MainPID is 0 when there is none."""
        value = self.run(["systemctl", "show", "--property=MainPID", "--value", unit]).strip()
        return int(value) if value.isdigit() and int(value) > 0 else None

    def signal_group(self, pid: int, number: signal.Signals) -> None:
        """Signal the group at once, in one call: nobody in it can start another in between."""
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            return

    def signal(self, pid: int, number: signal.Signals) -> None:
        """Signal one process only."""
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return

    def processes(self) -> list[Running]:
        """Read procfs (proc(5): in ``stat`` the command's name, in parentheses, may hold anything)."""
        found = []
        for place in _PROC.iterdir():
            if not place.name.isdigit():
                continue
            try:
                text = (place / "stat").read_text(errors="replace")
                status = _STATUS.search((place / "status").read_text(errors="replace"))
            except OSError:
                continue  # it ended while we looked
            front, _, back = text.rpartition(")")
            state, parent, group, session, *more = back.split()
            if status is None or state in "ZX":
                continue
            hears = bool(int(status[2], 16) >> (signal.SIGTERM - 1) & 1)
            ids = int(parent), int(group), int(session), int(status[1])
            found.append(Running(int(place.name), int(more[15]), front.partition("(")[2], *ids, hears))
        return found

    def _run(
        self, argv: Sequence[str], stdin: str = "", environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        if self._attend is not None:
            self._attend()
        try:
            process = subprocess.Popen(  # noqa: S603
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, **environment} if environment else None,
                start_new_session=True,
            )
        except OSError as error:
            raise AgentError(f"{argv[0]}: {error.strerror}") from None
        with process:
            try:
                out, err = self._wait(process, stdin)
            except BaseException:
                _end_group(process)
                raise
        return subprocess.CompletedProcess(list(argv), process.returncode, out, err)

    def _wait(self, process: subprocess.Popen[str], stdin: str) -> tuple[str, str]:
        given: str | None = stdin
        while True:
            try:
                return process.communicate(given, timeout=None if self._attend is None else _ATTEND_EVERY)
            except subprocess.TimeoutExpired:
                given = None  # it has it; what was read so far is kept
                if self._attend is not None:
                    self._attend()


def _says(line: str) -> bool:
    """Tell whether a line says what is wrong: docker's last one says where help is."""
    return bool(line.strip()) and not line.startswith(("See 'docker ", "Run 'docker "))


def _plain(escaped: str) -> str:
    """Return a path of ``mountinfo`` without its octal escapes."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), escaped)


def _end_group(process: subprocess.Popen[str]) -> None:
    """End a command with all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LAST_GRACE)
            return
