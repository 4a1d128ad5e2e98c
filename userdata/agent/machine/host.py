"""The operating system behind one interface that tests replace."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from userdata.agent.machine import freeze
from userdata.agent.machine.errors import AgentError, CommandError, TransientError

Argv = Sequence[str]
Variables = Mapping[str, str] | None

_SYS_BLOCK = Path("/sys/block")
_MOUNT = re.compile(r"^mnt_id:\s+(\d+)", re.M)
_INSTANCE_STORE = "Amazon EC2 NVMe Instance Storage"
_FIRST_BYTES: Final = 128 * 2**10
"""Start of a device, with the superblocks of xfs (0), ext4 (1 KiB) and btrfs (64 KiB)."""
_POLL_INTERVAL_SECONDS: Final = 0.5
QUICK: Final = 30.0
"""Time limit of a command that asks or changes little; for one on a path of the notice see `main_pid`."""
SLOW: Final = 900.0
"""Time limit of a command that reads or writes whole directories or a device."""
LOAD: Final = 7200.0
"""Time limit of a command that loads an image, a repository or an environment."""
_ENDED: Final = ("dead", "failed", "exited")
_UNIT_SECONDS: Final = 5.0
_TERMINATION_GRACE_SECONDS: Final = 5.0
"""Seconds between SIGTERM and SIGKILL for a cancelled command."""
_PROC = Path("/proc")
# The owner of /proc/<pid> is not reliable: it is root for a process that is not dumpable.
_STATUS = re.compile(r"^Uid:\s+(\d+).*^SigCgt:\s+([0-9a-f]+)", re.M | re.S)


@dataclass(frozen=True)
class ProcessInfo:
    """A process from procfs."""

    pid: int
    started: int
    """Start time in clock ticks; with the id it identifies a process within this boot."""
    name: str
    parent: int
    group: int
    session: int
    user: int
    """User id."""
    handles_sigterm: bool
    """Whether the process has a handler for SIGTERM."""


class Host(Protocol):
    """Block devices, mounts, units and signals of one machine."""

    def device_of(self, volume: str) -> str | None:
        """Return the block device path of an EBS volume (``vol-…``), or None if there is none."""
        ...

    def instance_stores(self) -> list[str]:
        """Return the unused instance store devices, the largest first."""
        ...

    def filesystem(self, device: str) -> str | None:
        """Return the file system type on ``device``, or None if the device is blank.

        Raises:
            TransientError: the device cannot be opened or read, which says nothing about its content.
        """
        ...

    def make_filesystem(self, device: str) -> None:
        """Create an xfs file system on ``device``; fails if the device has a file system."""
        ...

    def mounted(self, path: Path) -> str | None:
        """Return the source of the topmost mount at ``path``, such as a device; None if not a mount point."""
        ...

    def mount(self, device: str, path: Path) -> None:
        """Mount ``device`` at ``path``."""
        ...

    def unmount(self, path: Path) -> None:
        """Flush and unmount ``path`` and the mounts below it; fails while it is in use."""
        ...

    def capacity(self, device: str) -> int:
        """Return the size of a block device in bytes."""
        ...

    def grow(self, device: str, path: Path) -> None:
        """Grow the file system of ``device``, mounted at ``path``, to the size of its device."""
        ...

    def frozen(self, path: Path) -> AbstractContextManager[None]:
        """Freeze the file system mounted at ``path`` while a block runs; raises `AgentError`."""
        ...

    def run(self, argv: Argv, timeout: float, stdin: str = "", environment: Variables = None) -> str:
        """Run a command and return its standard output.

        ``environment`` is added to the agent's, for secrets that must not appear on a command line.

        Raises:
            AgentError: it failed, or has not ended after ``timeout`` seconds and is killed.
        """
        ...

    def polling(self, on_poll: Callable[[], None]) -> AbstractContextManager[None]:
        """Call ``on_poll`` before and during each command of the block; an exception cancels the command.

        Commands of other threads are not affected.
        """
        ...

    def main_pid(self, unit: str) -> int | None:
        """Return a systemd unit's main process; 0 until systemd restarts it, None if it has ended."""
        ...

    def signal_group(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to the process group that ``pid`` leads; a missing group is not an error."""
        ...

    def signal(self, pid: int, number: signal.Signals) -> None:
        """Send a signal; a missing process is not an error."""
        ...

    def processes(self) -> list[ProcessInfo]:
        """Return the running processes of this machine, without zombies."""
        ...


class _Polling(threading.local):
    on_poll: Callable[[], None] | None = None


class SystemHost:
    """The local machine, through sysfs, procfs and system commands."""

    def __init__(self, sys_block: Path = _SYS_BLOCK) -> None:
        self._sys_block = sys_block
        self._polling = _Polling()

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
                continue  # detached meanwhile
        return None

    def instance_stores(self) -> list[str]:
        """Find the devices by their model; EBS volumes have another one.

        Striped or encrypted devices have holders; partitions appear as directories.
        Source: EC2 user guide, "NVMe instance store volumes".
        """
        devices = []
        for device in sorted(self._sys_block.glob("nvme*n1")):
            try:
                model = (device / "device" / "model").read_text().strip()
                size = int((device / "size").read_text())
            except (OSError, ValueError):
                continue  # detached meanwhile
            is_free = not any((device / "holders").glob("*")) and not any(device.glob(f"{device.name}p*"))
            if model == _INSTANCE_STORE and is_free:
                devices.append((-size, f"/dev/{device.name}"))
        return [device for _, device in sorted(devices)]

    def filesystem(self, device: str) -> str | None:
        """Run blkid with low-level probing, which bypasses its cache.

        It exits with 2 if it finds nothing, and also if it cannot open or read the device (blkid(8), "EXIT
        STATUS"; seen with util-linux 2.38): blank is only what was read in full. A damaged xfs: to mount.
        """
        done = self._run(["blkid", "--probe", "--match-tag", "TYPE", "--output", "value", device], QUICK)
        if done.returncode not in (0, 2):
            raise AgentError(f"blkid {device}: exit {done.returncode}: {done.stderr.strip()}")
        if done.returncode == 0 and (kind := done.stdout.strip()):
            return kind
        return "xfs" if _read_start(device).startswith(b"XFSB") else None

    def make_filesystem(self, device: str) -> None:
        """Run mkfs.xfs without ``-f``: it rejects a device with a known file system."""
        self.run(["mkfs.xfs", "-q", device], SLOW)

    def mounted(self, path: Path) -> str | None:
        """Read the mount of the open path (proc(5), ``mnt_id`` and ``mountinfo``).

        The mount table alone also lists mounts that a later mount hides.
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
            mount, _, _, _, mount_point, *_ = front.split(" ")
            if mount == number and _unescape(mount_point) == os.path.realpath(path):
                return _unescape(back.split(" ")[1])
        return None

    def mount(self, device: str, path: Path) -> None:
        """Mount with ``noatime``, ``nodev`` and ``nosuid``."""
        path.mkdir(parents=True, exist_ok=True)
        self.run(["mount", "-o", "noatime,nodev,nosuid", device, str(path)], SLOW)

    def unmount(self, path: Path) -> None:
        """Flush first to keep the unmount short; mounts below are unmounted too."""
        self.run(["sync", "--file-system", str(path)], SLOW)
        self.run(["umount", "--recursive", str(path)], SLOW)

    def capacity(self, device: str) -> int:
        """Read the size from the kernel; NVMe notifies it when an EBS volume has grown."""
        return int(self.run(["blockdev", "--getsize64", device], QUICK))

    def grow(self, device: str, path: Path) -> None:
        """Grow xfs by its mount point, ext4 by its device; both online."""
        if self.filesystem(device) == "xfs":
            self.run(["xfs_growfs", "-d", str(path)], SLOW)
        else:
            self.run(["resize2fs", device], SLOW)

    def frozen(self, path: Path) -> AbstractContextManager[None]:
        """Freeze with a guard; never the root file system, to which an unused mount point belongs."""
        if self.mounted(path) is None:
            raise AgentError(f"{path} is not a mount point, so it is not frozen")
        return freeze.frozen(lambda argv: self.run(argv, QUICK), path)

    def run(self, argv: Argv, timeout: float, stdin: str = "", environment: Variables = None) -> str:
        """Run without a shell; the error has the command and the last line of its output."""
        done = self._run(argv, timeout, stdin, environment)
        if done.returncode:
            lines = [
                line for line in (done.stderr.strip() or done.stdout).splitlines() if _is_error_line(line)
            ]
            raise CommandError(
                f"{argv[0]}: exit {done.returncode}: {lines[-1] if lines else 'no output'}", done.stderr
            )
        return done.stdout

    @contextlib.contextmanager
    def polling(self, on_poll: Callable[[], None]) -> Iterator[None]:
        """See ``Host``: a fetch may take a quarter of an hour, and a lease lasts two minutes."""
        before, self._polling.on_poll = self._polling.on_poll, on_poll
        try:
            yield
        finally:
            self._polling.on_poll = before

    def main_pid(self, unit: str) -> int | None:
        """Read MainPID from systemd; it is 0 if there is none. A killed unit is in ``stop-post`` first."""
        shown = self.run(["systemctl", "show", "--property=MainPID,SubState,Job", unit], _UNIT_SECONDS)
        properties = dict(line.partition("=")[::2] for line in shown.splitlines())
        # A unit that is started again is dead in between, with a job.
        ended = properties.get("SubState", "dead") in _ENDED and not properties.get("Job")
        pid = properties.get("MainPID", "0")
        return int(pid) if pid.isdigit() and int(pid) else (None if ended else 0)

    def signal_group(self, pid: int, number: signal.Signals) -> None:
        """Signal the group in one call: none of its processes can fork in between."""
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

    def processes(self) -> list[ProcessInfo]:
        """Read procfs (proc(5): the command's name in ``stat``, in parentheses, may hold any character)."""
        result = []
        for directory in _PROC.iterdir():
            if not directory.name.isdigit():
                continue
            try:
                text = (directory / "stat").read_text(errors="replace")
                status = _STATUS.search((directory / "status").read_text(errors="replace"))
            except OSError:
                continue  # ended meanwhile
            front, _, back = text.rpartition(")")
            state, parent, group, session, *more = back.split()
            if status is None or state in "ZX":
                continue
            handles_sigterm = bool(int(status[2], 16) >> (signal.SIGTERM - 1) & 1)
            ids = int(parent), int(group), int(session), int(status[1])
            result.append(
                ProcessInfo(
                    int(directory.name), int(more[15]), front.partition("(")[2], *ids, handles_sigterm
                )
            )
        return result

    def _run(
        self, argv: Argv, timeout: float, stdin: str = "", environment: Variables = None
    ) -> subprocess.CompletedProcess[str]:
        if self._polling.on_poll is not None:
            self._polling.on_poll()
        try:
            process = subprocess.Popen(  # noqa: S603
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",  # what a job, a server or a path contains
                env={**os.environ, **environment} if environment else None,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # ValueError: a null byte in an argument
            raise AgentError(f"{argv[0]}: {getattr(error, 'strerror', None) or error}") from None
        try:
            out, err = self._wait(argv[0], process, stdin, timeout)
        except BaseException:
            _end_group(process)
            raise
        finally:  # without waiting for a process in uninterruptible sleep
            for pipe in (process.stdin, process.stdout, process.stderr):
                with contextlib.suppress(OSError, ValueError):
                    if pipe is not None:
                        pipe.close()
        return subprocess.CompletedProcess(list(argv), process.returncode, out, err)

    def _wait(self, name: str, process: subprocess.Popen[str], stdin: str, timeout: float) -> tuple[str, str]:
        pending_input: str | None = stdin
        on_poll, end = self._polling.on_poll, time.monotonic() + timeout
        while True:
            remaining = end - time.monotonic()
            if remaining <= 0:
                raise AgentError(f"{name}: not ended after {timeout:.0f} s; killed")
            try:
                return process.communicate(
                    pending_input, remaining if on_poll is None else min(remaining, _POLL_INTERVAL_SECONDS)
                )
            except subprocess.TimeoutExpired:
                pending_input = None  # already passed on; communicate() keeps the output so far
                if on_poll is not None:
                    on_poll()


def _read_start(device: str) -> bytes:
    """Return the start of a device; raise `TransientError` unless it can be read in full."""
    try:
        with Path(device).open("rb", buffering=0) as file:
            first = file.read(_FIRST_BYTES)
    except OSError as error:
        raise TransientError(f"{device}: {error.strerror}") from None
    if len(first) < _FIRST_BYTES:
        raise TransientError(f"{device}: only {len(first)} of {_FIRST_BYTES} bytes could be read")
    return first


def _is_error_line(line: str) -> bool:
    """Return whether a line describes the error: docker's last line refers to its help."""
    return bool(line.strip()) and not line.startswith(("See 'docker ", "Run 'docker "))


def _unescape(escaped: str) -> str:
    """Return a path of ``mountinfo`` without its octal escapes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), escaped)


def _end_group(process: subprocess.Popen[str]) -> None:
    """Terminate a command and its child processes."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_TERMINATION_GRACE_SECONDS)
            return
