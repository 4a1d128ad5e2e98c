"""Machines of the deployed stack: their image with stand-ins, their user data, times of their boot."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lambdas.core.model import GroupRole
from tests.boot.cloud import Cloud
from tests.boot.machine import Line, Machine, cgroups, remove_cgroup
from tests.waiting import wait_until

HERE: Final = Path(__file__).parent
PREFIX: Final = "gpu-spot-boot-"
"""Of what a run makes outside of its machines, followed by its process id."""
REQUIRED_VARIABLE: Final = "GPU_SPOT_BOOT"
"""With the value ``required`` a machine that cannot boot others fails the tests in place of skipping them."""
_PROGRAMS: Final = ("unshare", "nsenter", "setpriv", "ip", "losetup", "mkfs.xfs", "gcc", "openssl", "git")
_SLOW: Final = 300.0


def root_fs() -> Path:
    """Return where the root file system of the machines is, or would be."""
    return Path(subprocess.check_output([HERE / "root_fs", "path"], text=True).strip())


def lacking() -> str:
    """Return what this machine lacks to boot others, empty if nothing."""
    if os.geteuid() != 0:
        return "machines are booted by root"
    if missing := [one for one in _PROGRAMS if shutil.which(one) is None]:
        return f"missing: {', '.join(missing)}"
    tried = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--cgroup", "--fork", "true"], capture_output=True
    )
    if tried.returncode:
        return f"no namespaces: {tried.stderr.decode().strip()}"
    return "" if root_fs().exists() else "the root file system is not built: tests/boot/root_fs build"


def sweep(folder: Path) -> None:
    """Remove what a run that was killed has left: its processes, mounts and loop devices ended with it."""
    for left in [*folder.glob(f"{PREFIX}*"), *cgroups(f"{PREFIX}*")]:
        pid = left.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists() and not remove_cgroup(left):
            shutil.rmtree(left, ignore_errors=True)  # others of this run sweep, too


def stand_ins(folder: Path) -> Path:
    """Make the files in front of the image: of GPUs, of AWS, of the workers."""
    for source in (HERE / "stand_ins" / "files", HERE / "work"):
        if source.exists():
            shutil.copytree(source, folder, symlinks=True, dirs_exist_ok=True)
    libraries = folder / "usr/lib/x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    for source, name in (("nvml.c", "libnvidia-ml.so.1"), ("clock.c", "clock.so")):
        built = ["gcc", "-shared", "-fPIC", "-o", libraries / name, HERE / "stand_ins" / source]
        subprocess.run(built, check=True)
    units = folder / "etc/systemd/system"
    units.mkdir(parents=True, exist_ok=True)
    for unit in ("getty@tty1", "console-getty"):
        (units / f"{unit}.service").symlink_to("/dev/null")
    return folder


@dataclass
class Rig:
    """The cloud, and a folder for the machines of a test."""

    cloud: Cloud
    own: Path
    folder: Path
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds of what a test has measured."""
    machines: list[Machine] = field(default_factory=list)

    def machine(
        self,
        group: str,
        side: GroupRole = GroupRole.PRIMARY,
        programs: Mapping[str, str] | None = None,
        *,
        zone: int = 0,
        is_warm: bool = False,
    ) -> Machine:
        """Launch an instance, in its group's zone of this number, and boot it with its user data.

        ``programs`` take the place of the image's; ``is_warm``: it is to wait in the warm pool.
        """
        return self._boot(self.cloud.launch(group, side, zone), group, programs or {}, is_warm=is_warm)

    def proxy(self, service: str) -> Machine:
        """Launch a proxy of a service and boot it with its user data."""
        # The packages of Amazon Linux are in the image.
        installed = {"usr/local/sbin/apt-get": "#!/bin/sh\n"}
        return self._boot(self.cloud.launch_proxy(service), f"{service}-proxy", installed)

    def own_host(self, name: str, programs: Mapping[str, str]) -> Machine:
        """Boot a host outside AWS, without user data."""
        return self._boot("", name, programs)

    def _boot(
        self, instance: str, host: str, programs: Mapping[str, str], *, is_warm: bool = False
    ) -> Machine:
        name = f"{PREFIX}{os.getpid()}-{len(self.machines)}-{host}"
        made = Machine(
            name, self.cloud.network.address(), root_fs(), self.own, self.folder / f"{name}.console"
        )
        self.machines.append(made)
        made.instance = instance or host
        self.cloud.network.join(made)
        if instance:
            self.cloud.show(instance, made)
            self.cloud.metadata.warm(made.address, is_warm)
        seed = "var/lib/cloud/seed/nocloud"
        user_data = self.cloud.user_data(instance) if instance else "#cloud-config\n"
        made.write(f"{seed}/user-data", user_data)
        made.write(f"{seed}/meta-data", json.dumps({"instance-id": made.instance, "local-hostname": host}))
        for path, text in programs.items():
            made.write(path, text, 0o755)
        made.boot()
        return made

    def phase(self, name: str, machine: Machine, reached: Callable[[], object]) -> None:
        """Wait until something is reached, and record when, in seconds from the start of PID 1."""
        self.wait_for(reached)
        self.phases[name] = round(machine.seconds, 1)

    def measure(self, name: str, reached: Callable[[], object]) -> None:
        """Wait until something is reached, and record how long that took."""
        began = time.monotonic()
        self.wait_for(reached)
        self.phases[name] = round(time.monotonic() - began, 1)

    def wait_for(self, reached: Callable[[], object]) -> None:
        """Wait until something is reached; the bound is for a machine that is busy with other things."""
        wait_until(reached, _SLOW, 0.25)

    def booted(self, machine: Machine) -> None:
        """Wait until the boot script has started the units."""

        def started() -> bool:
            output = machine.disk / "var/log/cloud-init-output.log"
            text = output.read_text(errors="replace") if output.exists() else ""
            assert "gpu-spot boot: FAILED" not in text, text
            return "gpu-spot boot: started" in text

        self.phase("units started", machine, started)

    def ready(self, group: str, machine: Machine) -> bool:
        """Return whether all workers of a machine are ready, and have started since it was changed."""
        workers = [one for one in self.cloud.workers(group) if one.instance == machine.instance]
        started = [one.since for one in workers if one.state == "ready"]
        return bool(workers) and len(started) == len(workers) and min(started) > machine.changed_at

    def heartbeats_come(self, name: str, group: str, machine: Machine) -> None:
        """Wait for a heartbeat of each worker of a machine, and record how long that took."""
        at = time.time()

        def came() -> bool:
            sent = [one.heartbeat for one in self.cloud.workers(group) if one.instance == machine.instance]
            return bool(sent) and min(sent) > at

        self.measure(name, came)

    def sizes(self, machine: Machine) -> None:
        """Record the memory of each unit's main process, in MB."""
        for unit in machine.units():
            if (pid := machine.show(unit, "MainPID")) != "0":
                kib = machine.run(f"grep VmRSS /proc/{pid}/status").split()[1]
                self.phases[f"MB of {unit}"] = round(int(kib) / 1000, 1)

    def close(self) -> None:
        """End the machines and what is left of faults."""
        self.cloud.faults.clear()
        for machine in self.machines:
            machine.close()
            if machine.instance in self.cloud.machines:
                self.cloud.end(machine.instance)
        self.machines.clear()


def errors(machine: Machine) -> list[Line]:
    """Return what the agent has said of level error, of a bad GPU, or as a traceback."""
    return [
        line
        for line in machine.lines()
        if line.body.get("level") == "error"
        or line.body.get("event") == "GPU does not respond"
        or line.text.startswith("Traceback ")
    ]


def undisturbed(machine: Machine) -> None:
    """Assert that nothing failed on a machine, and that no unit was started again."""
    assert errors(machine) == []
    assert set(machine.restarts().values()) == {0}
