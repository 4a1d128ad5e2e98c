"""A shared host's machine: a mount for each tenant's volume, its containers, and the CPU time they get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rehearsal.machines.journal import Entry, Kind
from rehearsal.machines.machine import SimulatedHost
from rehearsal.machines.tenants import appetite, kernel
from rehearsal.machines.tenants.appetite import STEP, CpuDemand, Pattern
from rehearsal.machines.tenants.containers import Containers, is_running, tenant_of
from userdata.agent.tenants import codec, weights
from userdata.agent.tenants.host import docker
from userdata.agent.tenants.host.container import LABEL_SLICE
from userdata.agent.tenants.model import HostShape

_STILL_SECONDS: Final = 30.0
"""After the last command that changed something nobody here needs to look each second."""
_MEMORY: Final = 2**30
_COMMANDS: Final = ("docker", "nft")


def patterns(tenants: Sequence[str], cpus: Mapping[str, int], pinned: Sequence[str]) -> dict[str, Pattern]:
    """Return each tenant's appetite: who has pinned CPUs is steady, of the others every second is greedy.

    The biggest of them begins.
    """
    shared = sorted(set(tenants) - set(pinned), key=lambda name: (-cpus[name], name))
    kinds: tuple[Pattern, Pattern] = ("greedy", "office")
    steady: Pattern = "steady"
    return dict.fromkeys(pinned, steady) | {name: kinds[n % 2] for n, name in enumerate(shared)}


class TenantHost(SimulatedHost):
    """See ``SimulatedHost``; ``root`` stands for ``/`` where the agent looks for the kernel's files."""

    root: Path
    shape: HostShape
    _docker: _Docker
    _groups: kernel.Groups
    _played_until: float
    _seconds: dict[str, float]
    _busy_at: float

    def furnish(self, root: Path, shape: HostShape) -> None:
        """Be a machine of this shape, switched on now."""
        self.root, self.shape, self._docker = root, shape, _Docker(self)
        self._played_until = self._busy_at = self._scheduler.now
        self._seconds = {}
        kernel.show(root, shape)
        self._groups = kernel.Groups(root)

    def run(self, argv: Sequence[str], stdin: str = "", environment: Mapping[str, str] | None = None) -> str:
        """See ``Host``: Docker and nftables are played."""
        if argv[0] == "chown":
            return ""
        if argv[0] not in _COMMANDS:
            return super().run(argv, stdin, environment)
        self.settle()
        if argv[1] not in ("ps", "container"):
            self._busy_at = self._scheduler.now
        return self._docker.run(argv, stdin, environment)

    @property
    def quiet_until(self) -> float:
        """Until when only time passes here: what each wants stays the same, and nothing has just changed."""
        now = self._scheduler.now
        return (now // STEP + 1) * STEP if now - self._busy_at > _STILL_SECONDS else 0.0

    def serves(self, tenants: int) -> bool:
        """Tell whether so many tenants run."""
        return len(self._docker.pids()) == tenants

    def settle(self) -> None:
        """Give the containers their CPU time until now; each writes down on its volume that it worked."""
        now = self._scheduler.now
        if self._played_until >= now:
            return
        while self._played_until < now:
            to = min((self._played_until // STEP + 1) * STEP, now)
            for name, rate in self._rates(self._played_until).items():
                self._seconds[name] = self._seconds.get(name, 0.0) + rate * (to - self._played_until)
                self._write(name, self._played_until, to, rate)
            self._played_until = to
        for one in self._running():
            self._show(one)

    def died(self) -> None:
        """End with the machine: containers end where they are, and volumes are as they left them."""
        self.settle()
        for name in list(self._docker.containers):
            self._docker.die(name)
        self.unmount_all()

    def unmount_all(self) -> None:
        """See ``SimulatedHost``: a mount for each tenant."""
        homes = self._data / "tenants"
        for path in sorted(homes.iterdir()) if homes.is_dir() else ():
            if self.mounted(path):
                self.unmount(path)

    def changed(self, one: Mapping[str, Any]) -> None:
        """Hear of a container; called before its neighbours get another part of the CPUs."""
        if is_running(one):
            self._show(one)
        self.note("running" if is_running(one) else "stopped", tenant_of(one))

    def note(self, kind: Kind, tenant: str) -> None:
        """Note what a tenant's container does."""
        home = self._home(tenant)
        volume = home.readlink().name if home.is_symlink() else ""
        self._journal.note(Entry(self._scheduler.now, kind, self._instance, volume, self.zone, tenant=tenant))

    def _running(self) -> list[dict[str, Any]]:
        return [one for one in self._docker.containers.values() if is_running(one)]

    def _rates(self, at: float) -> dict[str, float]:
        """Return how many CPUs each tenant keeps busy from ``at`` on."""
        running = self._running()
        slices = {tenant_of(one): codec.decode_slice(one["Config"]["Labels"][LABEL_SLICE]) for one in running}
        own = {name: max(part.weight // weights.PER_CPU, 1) for name, part in slices.items()}
        pinned = [name for name, part in slices.items() if part.pinned]
        found = patterns([*slices], own, pinned)
        wants = {name: appetite.wants(pattern, own[name], at) for name, pattern in found.items()}
        rates = {name: min(wants[name], float(own[name])) for name in pinned}
        shared = {tenant_of(one): one["HostConfig"] for one in running if tenant_of(one) not in pinned}
        if shared:
            cpus = max(len(docker.cpus(limits["CpusetCpus"])) for limits in shared.values())
            rates |= appetite.divide(
                cpus,
                {
                    name: CpuDemand(weights.weight_of(limits["CpuShares"]), wants[name])
                    for name, limits in shared.items()
                },
            )
        return rates

    def _show(self, one: Mapping[str, Any]) -> None:
        name, shares = tenant_of(one), int(one["HostConfig"]["CpuShares"])
        seconds = self._seconds.setdefault(name, 0.0)
        self._groups.show(one["State"]["Pid"], weights.weight_of(shares), seconds, _MEMORY)

    def _write(self, tenant: str, begin: float, end: float, rate: float) -> None:
        folder = self._home(tenant) / "data"
        if folder.is_dir():
            with (folder / "worked.txt").open("a") as file:
                file.write(f"{begin:.0f} {end:.0f} {rate:.3f}\n")

    def _home(self, tenant: str) -> Path:
        return self._data / "tenants" / tenant


class _Docker(Containers):
    def __init__(self, host: TenantHost) -> None:
        super().__init__()
        self._host = host

    def changed(self, one: dict[str, Any]) -> None:
        self._host.changed(one)
