"""A machine: systemd as PID 1 of namespaces of its own, with a disk that outlives it.

Its mounts and its network exist as long as one process, the holder; both end with the process of the test.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import stat
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from tests.waiting import wait_until

HERE: Final = Path(__file__).parent
PLACE: Final = "/run/gpu-spot-boot"
"""Where a machine's disk and devices are, in the mount namespace of its holder."""
_ENDING: Final = ["setpriv", "--pdeathsig", "KILL"]
"""A process ends with the one that started it."""
_DISK: Final = "4g"
_COMMAND_SECONDS: Final = 120.0
_NODES: Final = {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9, "console": 3, "kmsg": 3}
_FOLDERS: Final = "disk/upper disk/work own base root dev/pts dev/shm dev/mqueue block pci nvidia/nvidia/gpus"
_CGROUPS: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Line:
    """A line of the journal; ``body`` is that of the agent's JSON, empty for any other line."""

    unit: str
    text: str
    body: dict[str, Any]


def holder(*mounts: str) -> subprocess.Popen[str]:
    """Start a process that holds a mount and a network namespace; ``mounts`` were run in them."""
    script = "\n".join(["ip link set lo up", *mounts, "echo ready", "exec sleep infinity"])
    argv = [*_ENDING, "unshare", "--mount", "--net", "--propagation=private", "sh", "-ec", script]
    started = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n", "the namespaces of a machine could not be made"
    return started


def end(process: subprocess.Popen[Any]) -> None:
    """Kill a process that we started."""
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


@dataclass
class Machine:
    """One machine. ``root_fs`` is its image, ``own`` a folder of files in front of it."""

    name: str
    address: str
    root_fs: Path
    own: Path
    log: Path
    instance: str = ""
    booted_at: float = 0.0
    changed_at: float = 0.0
    """When it was booted, or units were killed, by the wall clock."""
    _holder: subprocess.Popen[str] = field(init=False)
    _init: subprocess.Popen[bytes] | None = None
    _output: IO[bytes] | None = None
    _loops: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        folders = " ".join(f"{PLACE}/{one}" for one in _FOLDERS.split())
        self._holder = holder(
            f"mkdir -p {PLACE}",
            f"mount -t tmpfs -o mode=755,size={_DISK} machine {PLACE}",
            f"mkdir -p {folders}",
            f"mount -o loop,ro {shlex.quote(str(self.root_fs))} {PLACE}/base",
            f"cp -a {shlex.quote(str(self.own))}/. {PLACE}/own",
        )
        dev = self.place / "dev"
        for name, minor in _NODES.items():
            os.mknod(dev / name, stat.S_IFCHR | 0o666, os.makedev(1, minor))
            (dev / name).chmod(0o666)
        for name, number in {"tty": (5, 0), "fuse": (10, 229)}.items():
            os.mknod(dev / name, stat.S_IFCHR | 0o666, os.makedev(*number))
        for name, target in {"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}.items():
            (dev / name).symlink_to(f"/proc/self/{target}")
        (dev / "ptmx").symlink_to("pts/ptmx")
        gpu = self.place / "pci" / "0000:00:1e.0"
        gpu.mkdir()
        (gpu / "vendor").write_text("0x10de\n")
        (gpu / "class").write_text("0x030200\n")
        (self.place / "nvidia/nvidia/gpus" / gpu.name).mkdir()

    @property
    def holder_pid(self) -> int:
        """The process in whose network the machine is."""
        return self._holder.pid

    @property
    def place(self) -> Path:
        """Its disk and devices, seen from here."""
        return Path(f"/proc/{self._holder.pid}/root{PLACE}")

    @property
    def disk(self) -> Path:
        """What it has written, seen from here."""
        return self.place / "disk" / "upper"

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Put a file into its image, before the first boot."""
        file = self.place / "own" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def resize(self, size: str) -> None:
        """Give its disk another size."""
        enter = ["nsenter", f"--target={self._holder.pid}", "--mount"]
        subprocess.run([*enter, "mount", "-o", f"remount,size={size}", PLACE], check=True)

    def boot(self) -> None:
        """Start PID 1."""
        assert self._init is None
        own = [one / self.name for one in hierarchies()]
        for folder in own:
            folder.mkdir(exist_ok=True)
            for given in ("cpuset.cpus", "cpuset.mems"):
                if (folder / given).exists() and not (folder / given).read_text().strip():
                    (folder / given).write_text((folder.parent / given).read_text())
        enter = ["nsenter", f"--target={self._holder.pid}", "--mount", "--net"]
        namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--cgroup"]
        joined = "; ".join(f"echo $$ > {folder}/cgroup.procs" for folder in own)
        command = ["sh", "-ec", f'{joined}; exec "$@"', "sh", *enter, *namespaces]
        self._output = self.log.open("ab")
        self.booted_at, self.changed_at = time.monotonic(), time.time()
        self._init = subprocess.Popen(
            [*_ENDING, *command, str(HERE / "start"), PLACE],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
        )

    @property
    def runs(self) -> bool:
        """Whether its PID 1 runs."""
        return self._init is not None and self._init.poll() is None

    @property
    def seconds(self) -> float:
        """Since PID 1 was started."""
        return time.monotonic() - self.booted_at

    def _pid(self) -> int:
        """Return PID 1, as the host numbers it."""
        assert self._init is not None
        started = self._init.pid

        def child() -> int:
            assert self.runs, f"{self.name} does not run: {self.log.read_text(errors='replace')[-2000:]}"
            pid = int(Path(f"/proc/{started}/task/{started}/children").read_text() or "0")
            return pid if pid and Path(f"/proc/{pid}/exe").readlink().name == "systemd" else 0

        return wait_until(child)

    def run(self, command: str, seconds: float = _COMMAND_SECONDS, *, check: bool = True) -> str:
        """Run a shell command in the machine; return its output."""
        enter = [
            "nsenter",
            f"--target={self._pid()}",
            "--mount",
            "--uts",
            "--ipc",
            "--net",
            "--pid",
            "--cgroup",
        ]
        # With the capabilities of the host's root it could set the host's clock.
        without = ["setpriv", "--bounding-set=-sys_time,-sys_module,-sys_boot"]
        clean = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "SYSTEMD_PAGER=", "LANG=C.UTF-8"]
        done = subprocess.run(
            [*enter, *without, *clean, "sh", "-c", f"cd /; {command}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        assert not check or done.returncode == 0, f"{self.name}: {command}: {done.stdout}{done.stderr}"
        return done.stdout

    def show(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.run(f"systemctl show --property={name} --value {unit}").strip()

    def units(self) -> list[str]:
        """Return our units that were loaded."""
        listed = self.run("systemctl list-units --all --plain --no-legend 'gpu-spot-*.service'")
        return [line.split()[0] for line in listed.splitlines()]

    def restarts(self) -> dict[str, int]:
        """Return how often systemd has restarted each of our units."""
        return {unit: int(self.show(unit, "NRestarts")) for unit in self.units()}

    def lines(self) -> list[Line]:
        """Return what our units have said since PID 1 was started."""
        said = self.run("journalctl --boot --output=json --all --output-fields=MESSAGE,_SYSTEMD_UNIT")
        lines = (_line(json.loads(one)) for one in said.splitlines())
        return [line for line in lines if line.unit.startswith("gpu-spot-")]

    def journal(self) -> str:
        """Return the end of what it has said, or why it cannot."""
        try:
            journal = "journalctl --boot --no-hostname --priority=info"
            return self.run(f"{journal} --lines=200 --unit='gpu-spot-*'; {journal} --lines=50")
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            logs = [self.log, *(self.disk / "var/log" / name for name in ("syslog", "gpu-spot.log"))]
            written = (log.read_text(errors="replace")[-10_000:] for log in logs if log.exists())
            return "\n".join((str(error), *written))

    def kill(self, *units: str) -> None:
        """Kill the main processes of units, as a crash does."""
        self.changed_at = time.time()
        self.run(f"systemctl kill --kill-whom=main --signal=KILL {' '.join(units)}")

    def attach(self, volume: str, file: Path) -> None:
        """Show an EBS volume as a device, as Nitro does."""
        if volume in self._loops:
            return
        loop = subprocess.check_output(["losetup", "--find", "--show", str(file)], text=True).strip()
        self._loops[volume] = os.open(loop, os.O_RDONLY | os.O_CLOEXEC)
        subprocess.run(["losetup", "--detach", loop], check=True)  # by the kernel, once nobody has it open
        used = {one.name for one in (self.place / "block").iterdir()}
        name = next(one for number in range(1, 28) if (one := f"nvme{number}n1") not in used)
        device = self.place / "block" / name / "device"
        device.mkdir(parents=True)
        (device / "serial").write_text(volume.replace("-", "") + "\n")
        (device / "model").write_text("Amazon Elastic Block Store\n")
        (device.parent / "size").write_text(f"{file.stat().st_size // 512}\n")
        os.mknod(self.place / "dev" / name, stat.S_IFBLK | 0o660, Path(loop).stat().st_rdev)

    def detach(self, volume: str) -> None:
        """Take a volume's device away."""
        for shown in (self.place / "block").iterdir():
            if (shown / "device" / "serial").read_text().strip() == volume.replace("-", ""):
                for one in ("device/serial", "device/model", "size"):
                    (shown / one).unlink()
                (shown / "device").rmdir()
                shown.rmdir()
                (self.place / "dev" / shown.name).unlink()
        os.close(self._loops.pop(volume))

    @property
    def volumes(self) -> set[str]:
        """The volumes that are attached."""
        return set(self._loops)

    def wait_until_down(self, seconds: float = 300.0) -> float:
        """Wait until PID 1 has ended; return how long that took."""
        assert self._init is not None
        began = time.monotonic()
        self._init.wait(seconds)
        self._init = None
        if self._output is not None:
            self._output.close()
        return time.monotonic() - began

    def stop(self) -> float:
        """Shut down as EC2 asks for it; return how long that took."""
        os.kill(self._pid(), signal.SIGRTMIN + 4)
        return self.wait_until_down()

    def cut(self) -> None:
        """Take the power away."""
        if self._init is not None:
            os.kill(self._pid(), signal.SIGKILL) if self.runs else None
            self.wait_until_down()

    def close(self) -> None:
        """End it; nothing of it remains."""
        with contextlib.suppress(AssertionError, OSError):
            self.cut()
        if self._init is not None:
            end(self._init)
            self._init = None
        for descriptor in self._loops.values():
            os.close(descriptor)
        self._loops.clear()
        end(self._holder)
        for folder in cgroups(self.name):
            wait_until(lambda folder=folder: remove_cgroup(folder))  # type: ignore[misc]


def hierarchies() -> list[Path]:
    """Return where each hierarchy of cgroups is."""
    if (_CGROUPS / "cgroup.procs").exists():
        return [_CGROUPS]
    return [one for one in sorted(_CGROUPS.iterdir()) if (one / "cgroup.procs").exists()]


def cgroups(pattern: str) -> list[Path]:
    """Return the cgroups of machines by their name."""
    return [found for one in hierarchies() for found in one.glob(pattern)]


def remove_cgroup(folder: Path) -> bool:
    """Remove a cgroup with those below it; return whether it is gone."""
    with contextlib.suppress(OSError):
        for inside in sorted(folder.rglob("*"), reverse=True):
            if inside.is_dir():
                inside.rmdir()
        folder.rmdir()
    return not folder.exists()


def _line(entry: dict[str, Any]) -> Line:
    text = entry.get("MESSAGE") or ""
    if not isinstance(text, str):
        text = bytes(text).decode(errors="replace")
    body: dict[str, Any] = {}
    if text.startswith("{"):
        with contextlib.suppress(ValueError):
            body = json.loads(text)
    return Line(str(entry.get("_SYSTEMD_UNIT", "")), text, body)
