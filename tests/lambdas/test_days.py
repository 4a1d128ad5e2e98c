"""Simulated days of a stack: what must not grow does not.

Each day a group leaves the stack and another one joins it, and an instance of each is replaced; on a shared
host a tenant leaves and another one joins with another image; a job moves to the other zone. The functions
are called every three hours. Any size that grows after the first third is an error.
"""

from __future__ import annotations

import gc
import itertools
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from lambdas.aws import items
from lambdas.aws.items import expiry
from tests.fakes.aws import REPORT, FakeAws, config, partition, tags, worker
from tests.lambdas.many_groups import controller
from tests.node.crash import ZONES, Region
from tests.tenants.docker_double import DockerDouble
from tests.tenants.hosts import tenant
from tests.tenants.supervised import Bench
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import Argv, Variables
from userdata.agent.tenants.model import Tenant
from userdata.agent.work import containers
from userdata.agent.work.images import PulledImages

DAYS = 90
DAY = 86_400.0
PASSES = 8
GROUPS, TENANTS = 6, 4
NOISE = {"seconds of a pass": 0.5, "objects of Python": 0.02, "bytes of memory items": 0.02}
"""Share by which a size may be larger in the last third than in the second; the others may not at all."""


@dataclass
class Stack:
    """The functions of a stack, and what AWS keeps for them: it deletes what has expired."""

    aws: FakeAws = field(default_factory=FakeAws)
    groups: list[str] = field(default_factory=list)
    ids: Iterator[int] = field(default_factory=itertools.count)
    seconds: list[float] = field(default_factory=list)

    def day(self, number: int) -> dict[str, float]:
        if len(self.groups) == GROUPS:
            self._remove(self.groups.pop(0))
        while len(self.groups) < GROUPS:
            self._add(f"g{number:03}-{len(self.groups)}")
        for name in self.groups:
            members = self.aws.groups[f"{name}-primary"]["Instances"]
            if len(members) > 1:
                del self.aws.instances[members.pop(0)["InstanceId"]]
            self._launch(name)
        self.seconds.clear()
        for _ in range(PASSES):
            self._pass()
            self.aws.now += DAY / PASSES
        return {
            "parameters": len(self.aws.parameters),
            "memory items": len(self.aws.memory),
            "bytes of memory items": len(str(list(self.aws.memory.values()))),
            "rows of workers": sum(map(len, self.aws.rows.values())),
            "calls of a pass": sum(self.aws.calls.values()),
            "seconds of a pass": statistics.median(self.seconds),
        }

    def _add(self, name: str) -> None:
        self.groups.append(name)
        for side in ("primary", "fallback"):
            self.aws.add_group(f"{name}-{side}", 2 * (side == "primary"))
        self.aws.add(0, name)
        text = config(primary=f"{name}-primary", fallback=f"{name}-fallback", max=4)
        self.aws.set(name, config=text, control="{}", target="2")
        self._launch(name)

    def _launch(self, name: str) -> None:
        aws, instance = self.aws, f"i-{next(self.ids):017x}"
        aws.add_instance(f"{name}-primary", instance, spot=True, launched=aws.now - 600, heartbeat=None)
        aws.instances[instance]["Tags"] = tags(name)

    def _remove(self, name: str) -> None:
        """Do as a deployment does: of the tables it knows nothing."""
        for side in ("primary", "fallback"):
            for member in self.aws.groups.pop(f"{name}-{side}")["Instances"]:
                self.aws.instances.pop(member["InstanceId"], None)
        for leaf in ("config", "target", "health", "replacements", "control"):
            del self.aws.parameters[f"/gpu-spot/dev/groups/{name}/{leaf}"]

    def _pass(self) -> None:
        aws, now = self.aws, self.aws.now
        report = replace(REPORT, reported_at=now - 5, done=int(now) % 10_000_000)
        for name in self.groups:
            for member in aws.groups[f"{name}-primary"]["Instances"]:
                row = worker(member["InstanceId"], now - 500, now - 5, report=report)
                aws.row(replace(row, partition=partition(row.instance, name)))
        for table in (aws.memory, *aws.rows.values()):
            for key in [key for key, item in table.items() if 0 < expiry(item) < aws.now]:
                del table[key]
        aws.calls.clear()
        started = time.process_time()
        errors = [one.error for one in controller(aws).run() if one.error]
        errors += [error for one in aws.checker().run(50.0) for error in one.errors]
        assert not errors, errors
        self.seconds.append(time.process_time() - started)
        aws.messages.clear()
        aws.delayed.clear()


class Docker(DockerDouble):
    """Docker with images; it removes none that a tenant uses."""

    def __init__(self, tenants: Sequence[Tenant]) -> None:
        super().__init__()
        self.images: set[str] = set()
        self._tenants = tenants

    def run(self, argv: Argv, timeout: float = 60, stdin: str = "", environment: Variables = None) -> str:
        match list(argv):
            case ["docker", "pull", *_, image]:
                self.images.add(image)
            case ["docker", "image", "rm", *_, image]:
                if any(one.image == image for one in self._tenants):
                    raise AgentError("docker: exit 1: image is being used by running container")
                self.images.discard(image)
            case _:
                return super().run(argv, timeout, stdin, environment)
        return ""


class SharedHost:
    """A shared host, whose tenants change."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bench = folder, Bench(folder)
        self.tenants: list[Tenant] = []
        self.docker = self.bench.docker = Docker(self.tenants)
        self.images = PulledImages(self.docker, self.bench.clock, folder / "images.json")
        self.bench.list = lambda: tuple(self.tenants)
        self.supervisor = self.bench.supervisor()

    def day(self, number: int) -> dict[str, float]:
        if len(self.tenants) == TENANTS:
            self.tenants.pop(0)
        while len(self.tenants) < TENANTS:
            image = f"registry.example.com/team/t@sha256:{number:032}{len(self.tenants):032}"
            self.images.pull(image, lambda image=image: containers.pull(self.docker, image, lambda: ""))  # type: ignore[misc]
            self.tenants.append(tenant(f"t{number:03}-{len(self.tenants)}", image=image))
        self.bench.pass_(self.supervisor, 120)
        self.bench.clock.advance(DAY - 120)
        for recorded in (self.docker.ran, self.bench.sent, self.bench.watched, self.bench.heartbeats.states):
            recorded.clear()
        self.bench.volumes.released.clear()
        return {
            "images": len(self.docker.images),
            "containers": len(self.docker.containers),
            "files of the host": sum(path.is_file() for path in self.folder.rglob("*")),
        }


class Job:
    """A job with a volume, on an instance of another zone each day."""

    def __init__(self) -> None:
        self.region = Region("calm", 1)

    def day(self, number: int) -> dict[str, float]:
        self.region.live(f"i-{number}", ZONES[number % 2], release=True)
        self.region.clock.sleep(DAY)
        self.region.world.calls.clear()
        return {"volumes": len(self.region.world.disks), "snapshots": len(self.region.world.copies)}


def play(days: int, folder: Path) -> dict[str, list[float]]:
    """Return the sizes at the end of each day, by name."""
    stack, host, job = Stack(), SharedHost(folder), Job()
    sizes: dict[str, list[float]] = {}
    for number in range(days):
        seen = {**stack.day(number), **host.day(number), **job.day(number)}
        gc.collect()
        seen["objects of Python"] = len(gc.get_objects())
        for name, size in seen.items():
            sizes.setdefault(name, []).append(size)
    return sizes


def problems(sizes: dict[str, list[float]]) -> list[str]:
    """Return what has a larger median in the last third than in the second."""
    grown = []
    for name, values in sizes.items():
        third = len(values) // 3
        before, after = statistics.median(values[third:-third]), statistics.median(values[-third:])
        if after > before * (1 + NOISE.get(name, 0.0)):
            grown.append(f"{name} grow from {before:g} to {after:g}")
    return grown


@pytest.mark.parametrize("count", [9, pytest.param(90, marks=pytest.mark.soak)])
def test_nothing_grows(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if count == 9:  # items of removed groups last a third of the days, as of 90
        monkeypatch.setattr(items, "KEPT_SECONDS", 3 * DAY)
    sizes = play(count, tmp_path)
    assert problems(sizes) == []
    assert max(sizes["snapshots"]) <= 2
    assert max(sizes["images"]) <= TENANTS


def test_what_grows_is_noticed() -> None:
    grown = {"images": [4.0, 4.0, 4.0, 5.0, 5.0, 6.0, 6.0, 7.0, 7.0], "seconds of a pass": [1.0] * 8 + [9.0]}
    assert problems(grown) == ["images grow from 5 to 7"]
