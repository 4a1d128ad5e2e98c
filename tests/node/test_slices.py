"""Tenants of a shared machine: real processes in place of Docker's and the driver's commands."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.node import configs
from tests.node.clocks import FakeClock
from tests.node.fake_docker import FakeDocker
from tests.node.metadata import MetadataServer
from userdata.agent import config, containers, log, notice
from userdata.agent.errors import ConfigError, RefusedError
from userdata.agent.host import SystemHost
from userdata.agent.notice import Notice
from userdata.agent.slices import docker, machine
from userdata.agent.slices.landlord import Landlord
from userdata.agent.slices.model import Share

IMAGE = f"example.com/tenant@sha256:{'0' * 64}"
GPUS = [f"GPU-{n:08}-0000-0000-0000-000000000000" for n in range(4)]


def tenant(name: str, user: int, **changes: Any) -> dict[str, Any]:
    return {"name": name, "image": IMAGE, "user": user, "cpus": 1, "memoryGib": 8, "gpus": 1, **changes}


def body(*tenants: dict[str, Any], **changes: Any) -> dict[str, Any]:
    whole = configs.service(slices={"tenants": list(tenants), "reservedCpus": 2, **changes})
    del whole["service"]
    return whole


ALICE = tenant(
    "alice", 2001, port=8888, volumes=[{"hostPath": "/dltraining/alice", "containerPath": "/work"}]
)
BOB = tenant("bob", 2002, gpus=2, environment=["TOKEN=secret"], command=["serve", "--fast"])


def at_once(work: Callable[[], None]) -> Callable[[], bool]:
    work()
    return lambda: False


class House:
    """A machine of 8 CPUs, 64 GiB and 4 GPUs with a landlord."""

    def __init__(self, folder: Path, clock: FakeClock) -> None:
        self.docker, self.clock, self.directory = FakeDocker(folder, GPUS), clock, folder / "run"
        cpus = folder / "sys/devices/system/cpu"
        for cpu in range(8):
            (cpus / f"cpu{cpu}/topology").mkdir(parents=True)
            (cpus / f"cpu{cpu}/topology/core_id").write_text(f"{cpu % 4}\n")
            (cpus / f"cpu{cpu}/topology/physical_package_id").write_text("0\n")
        (cpus / "online").write_text("0-3,4-7\n")
        (folder / "proc").mkdir()
        (folder / "proc/meminfo").write_text(f"MemTotal: {64 * 2**20} kB\nMemFree: 1 kB\n")
        self.folder = folder

    def landlord(self, *tenants: dict[str, Any], spawn: Any = None) -> Landlord:
        spawn = spawn or at_once
        slices = config.parse(json.dumps(body(*tenants))).slices
        assert slices
        host = SystemHost()
        return Landlord(
            slices,
            host,
            self.clock,
            self.directory,
            lambda image: host.run(["docker", "pull", "--quiet", image]) and None,
            lambda: machine.look(host, gpus=True, root=self.folder),
            spawn,
        )

    def settle(self, *tenants: dict[str, Any], passes: int = 1) -> Landlord:
        made = self.landlord(*tenants)
        self.ticks(made, passes)
        return made

    def ticks(self, landlord: Landlord, count: int = 1) -> None:
        for _ in range(count):
            landlord.tick()
            self.clock.advance(10)

    def devices(self) -> dict[str, list[str]]:
        return {name: one["options"].get("--device", []) for name, one in self.docker.tenants().items()}


@pytest.fixture
def house(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> House:
    made = House(tmp_path, clock)
    for name, value in made.docker.environment().items():
        monkeypatch.setenv(name, value)
    return made


def test_the_machine_is_read(house: House) -> None:
    found = machine.look(SystemHost(), gpus=True, root=house.folder)
    assert (found.gpus, found.memory_gib) == (tuple(GPUS), 64)
    assert found.cpus == (0, 4, 1, 5, 2, 6, 3, 7)  # the threads of a core are neighbours
    assert machine.look(SystemHost(), gpus=False, root=house.folder).gpus == ()


def test_every_tenant_runs_in_what_is_his(house: House) -> None:
    house.settle(ALICE, BOB)
    alice, bob = (house.docker.tenants()[name] for name in ("alice", "bob"))
    options = alice["options"]
    assert options["--device"] == [f"nvidia.com/gpu={GPUS[0]}"]
    assert bob["options"]["--device"] == [f"nvidia.com/gpu={gpu}" for gpu in GPUS[1:3]]
    assert (options["--cpus"], options["--cpuset-cpus"]) == (["1"], ["1"])
    assert (options["--memory"], options["--memory-swap"], options["--shm-size"]) == (
        ["8g"],
        ["8g"],
        ["4096m"],
    )
    assert (options["--user"], options["--network"]) == (["2001:2001"], ["gpu-spot-tenant-alice"])
    assert options["--publish"] == ["20000:8888/tcp"]
    assert "--publish" not in bob["options"]
    assert options["--cap-drop"] == ["ALL"]
    assert options["--security-opt"] == ["no-new-privileges"]
    assert "--read-only" in options
    assert options["--pids-limit"] == ["4096"]
    assert "type=bind,src=/dltraining/alice,dst=/work" in options["--mount"]
    assert (house.docker.root / "dltraining/alice").is_dir()
    assert (bob["image"], bob["command"]) == (IMAGE, ["serve", "--fast"])
    assert "TOKEN=secret" in bob["env"].splitlines()
    assert not any("secret" in part for call in house.docker.state["calls"] for part in call)
    [secret] = house.directory.glob("slices/bob.env")
    assert secret.stat().st_mode & 0o777 == 0o600


def test_nothing_is_done_where_nothing_changed(house: House) -> None:
    house.settle(ALICE, BOB)
    before = house.docker.tenants()
    house.settle(ALICE, BOB, passes=3)  # another process of the agent finds them as they are
    assert house.docker.tenants() == before
    assert len(house.docker.calls("run")) == 2


def test_who_comes_goes_or_changes_moves_nobody(house: House) -> None:
    house.settle(ALICE, BOB)
    bob = house.docker.tenants()["bob"]
    house.settle(BOB, tenant("carol", 2003))  # alice goes, carol gets her GPU
    assert house.docker.tenants()["bob"] == bob
    assert house.devices()["carol"] == [f"nvidia.com/gpu={GPUS[0]}"]
    assert house.docker.state["networks"] == ["gpu-spot-tenant-bob", "gpu-spot-tenant-carol"]
    assert house.docker.calls("stop")[0][:3] == ["stop", "-t", "30"]
    house.settle(BOB, tenant("carol", 2003, gpus=2, environment=["A=1"]))
    assert house.docker.tenants()["bob"] == bob
    assert house.devices()["carol"] == [f"nvidia.com/gpu={GPUS[n]}" for n in (0, 3)]


@pytest.mark.parametrize(
    "change",
    [
        {"memoryGib": 9},
        {"environment": ["A=2"]},
        {"command": ["x"]},
        {"port": 1},
        {"pids": 64},
        {"user": 3000},
    ],
)
def test_a_change_replaces_the_container(house: House, change: dict[str, Any]) -> None:
    house.settle(ALICE)
    before = house.docker.tenants()["alice"]["id"]
    house.settle({**ALICE, **change})
    assert house.docker.tenants()["alice"]["id"] != before
    assert house.docker.tenants()["alice"]["state"] == "running"


def test_a_container_that_was_stopped_or_removed_by_hand_comes_back(house: House) -> None:
    landlord = house.settle(ALICE, BOB)
    state = house.docker.state
    state["containers"]["gpu-spot-tenant-alice"]["state"] = "exited"
    del state["containers"]["gpu-spot-tenant-bob"]
    house.docker.keep(state)
    devices = {"alice": [f"nvidia.com/gpu={GPUS[0]}"], "bob": [f"nvidia.com/gpu={gpu}" for gpu in GPUS[1:3]]}
    house.ticks(landlord)
    assert house.devices() == devices
    assert {one["state"] for one in house.docker.tenants().values()} == {"running"}


def test_an_image_that_is_missing_stops_nobody_and_is_tried_with_growing_pauses(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []
    monkeypatch.setattr(log, "error", lambda event, **fields: said.append(fields))
    landlord = house.settle(ALICE, BOB)
    other = f"example.com/other@sha256:{'1' * 64}"
    house.docker.change(missing=[other])
    bob = house.docker.tenants()["bob"]
    landlord = house.settle(ALICE, {**BOB, "image": other}, passes=12)
    assert house.docker.tenants()["bob"] == bob  # the old one runs on
    assert [one["again_in"] for one in said] == [10, 20, 40, 80]
    assert {one["tenant"] for one in said} == {"bob"}
    house.docker.change(missing=[])
    house.ticks(landlord, 10)
    assert house.docker.tenants()["bob"]["image"] == other


def test_nobody_gets_a_gpu_before_its_last_tenant_has_gone(house: House) -> None:
    house.settle(tenant("alice", 2001, gpus=3), tenant("bob", 2002, gpus=1))
    other = f"example.com/other@sha256:{'1' * 64}"
    house.docker.change(missing=[other])
    # Alice is to give two up, but her new container cannot come: hers runs on, so bob's waits.
    wanted = tenant("alice", 2001, gpus=1, image=other), tenant("bob", 2002, gpus=3)
    landlord = house.settle(*wanted, passes=2)
    assert len(house.devices()["alice"]) == 3
    assert len(house.devices()["bob"]) == 1
    house.docker.change(missing=[])
    house.ticks(landlord, 4)
    assert (len(house.devices()["alice"]), len(house.devices()["bob"])) == (1, 3)
    assert not {*house.devices()["alice"]} & {*house.devices()["bob"]}


def test_too_much_is_refused_at_the_start_and_nothing_touched(house: House) -> None:
    house.settle(ALICE)
    with pytest.raises(RefusedError, match="slices: tenant bob asks for 4 GPUs, 3 left"):
        house.settle(ALICE, {**BOB, "gpus": 4})
    assert list(house.docker.tenants()) == ["alice"]
    assert house.docker.calls("stop") == []


def test_a_gpu_that_is_lost_later_ends_neither_the_others_nor_the_watch(house: House) -> None:
    landlord = house.settle(ALICE, BOB, tenant("carol", 2003))
    before = house.docker.tenants()
    house.docker.gpus.write_text("\n".join(GPUS[1:]) + "\n")
    house.ticks(landlord, 3)
    assert house.docker.tenants() == before
    assert landlord.tick()


def doom(house: House, seconds: float, drain: float) -> None:
    now = house.clock.wall()
    notice.write(house.directory, Notice("spot", "terminate", "t", now + seconds, now + seconds - drain, now))


def test_a_notice_is_shown_at_once_and_all_are_stopped_in_time_to_save(house: House) -> None:
    landlord = house.settle(ALICE, BOB)
    doom(house, 120, 100)
    assert landlord.tick()
    shown = house.directory / "public"
    assert [path.name for path in shown.iterdir()] == ["notice.json"]
    for one in house.docker.tenants().values():
        assert f"type=bind,src={shown},dst={shown},readonly" in one["options"]["--mount"]
        assert f"GPU_SPOT_NOTICE={shown}/notice.json" in one["env"]
    assert house.docker.calls("stop") == []
    house.clock.advance(20)
    while landlord.tick():
        house.clock.advance(1)
    [stop] = house.docker.calls("stop")
    assert stop[:3] == ["stop", "-t", "95"]
    assert len(stop) == 5  # both at once
    assert {one["state"] for one in house.docker.tenants().values()} == {"exited"}


def test_told_to_stop_it_leaves_tenants_alone_unless_the_instance_is_taken(house: House) -> None:
    landlord = house.settle(ALICE)
    landlord.stop()
    assert not landlord.tick()
    assert house.docker.tenants()["alice"]["state"] == "running"
    landlord = house.settle(ALICE)
    doom(house, 120, 0)
    landlord.stop()  # by `watch`, whose clock came first
    while landlord.tick():
        house.clock.advance(1)
    assert house.docker.tenants()["alice"]["state"] == "exited"


def test_a_notice_is_heard_while_an_image_is_on_its_way_and_its_tenant_is_not_started(house: House) -> None:
    landlord = house.settle(ALICE)
    later: list[Callable[[], None]] = []

    def spawn(work: Callable[[], None]) -> Callable[[], bool]:
        later.append(work)
        return lambda: True

    landlord = house.landlord(ALICE, BOB, spawn=spawn)
    for _ in range(3):
        assert landlord.tick()
        house.clock.advance(10)
    [pulling] = later  # one at a time
    doom(house, 120, 120)
    assert landlord.tick()
    assert house.docker.tenants()["alice"]["state"] == "exited"
    pulling()
    assert list(house.docker.tenants()) == ["alice"]
    assert not landlord.tick()


def test_docker_that_does_not_answer_is_asked_again(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(log, "error", lambda event, **fields: said.append(event))
    text = house.docker.store.read_text()
    house.docker.store.write_text("{")
    landlord = house.landlord(ALICE)
    for _ in range(5):
        assert landlord.tick()
        house.clock.advance(10)
    assert said == ["tenants cannot be looked after"]
    house.docker.store.write_text(text)
    house.ticks(landlord)
    assert list(house.docker.tenants()) == ["alice"]


def test_the_subcommand_runs_tenants_and_leaves_them_when_it_is_stopped(
    tmp_path: Path, metadata_server: MetadataServer
) -> None:
    double = FakeDocker(tmp_path, [])
    path = tmp_path / "agent.json"
    # This machine itself, whatever it is.
    path.write_text(
        json.dumps(body(tenant("alice", 2001, gpus=0, memoryGib=1), reservedCpus=0, reservedMemoryGib=0))
    )
    argv = [sys.executable, "-m", "userdata.agent", "--config", str(path), "--run-dir", str(tmp_path / "run")]
    environment = os.environ | double.environment()
    process = subprocess.Popen(
        [*argv, "--metadata-url", metadata_server.url, "slices"], env=environment, stderr=subprocess.PIPE
    )
    try:
        end = time.monotonic() + 20
        while not any(b"tenant started" in line for line in process.stderr or ()):
            assert time.monotonic() < end
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    assert double.tenants()["alice"]["state"] == "running"


def test_an_image_in_ecr_is_pulled_after_a_login(house: House) -> None:
    image = f"1.dkr.ecr.us-west-2.amazonaws.com/team/tenant@sha256:{'0' * 64}"
    containers.pull(SystemHost(), image, lambda: "swordfish")
    assert house.docker.state["logins"] == [["1.dkr.ecr.us-west-2.amazonaws.com", "swordfish"]]
    assert house.docker.calls("pull") == [["pull", "--quiet", image]]
    assert not any("swordfish" in part for call in house.docker.state["calls"] for part in call)


def wrong(*path: Any, to: Any) -> Callable[[], dict[str, Any]]:
    def make() -> dict[str, Any]:
        whole = json.loads(json.dumps(body(ALICE, BOB)))
        place = whole["slices"]
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to
        return whole

    return make


VOLUME = {"hostPath": "/dltraining/alice/x", "containerPath": "/y"}


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (wrong("tenants", 0, "name", to="A b"), r"slices.tenants\[0\]: name: 'A b'; allowed"),
        (
            wrong("tenants", 0, "image", to="a:latest"),
            r"tenants\[0\]: image: 'a:latest'; allowed: repository@",
        ),
        (wrong("tenants", 0, "user", to=0), r"tenants\[0\]: user: 0; allowed: 1000 to"),
        (wrong("tenants", 0, "user", to=2002), "tenants: user 2002 is given twice"),
        (wrong("tenants", 0, "name", to="bob"), "tenants: name 'bob' is given twice"),
        (wrong("tenants", 0, "cpus", to=0), "cpus: 0; allowed: 1 to"),
        (wrong("tenants", 0, "memoryGiB", to=8), "memoryGiB: unknown key"),
        (wrong("tenants", 0, "hostPort", to=80), "hostPort: 80; allowed: 1024 to 65535"),
        (wrong("tenants", 0, "hostPort", to=20005), "hostPort: 20005; allowed: .* dealt out"),
        (wrong("tenants", 1, "hostPort", to=9000), "hostPort: 9000 without a port"),
        (wrong("tenants", 0, "environment", to=["A"]), "environment: 'A'; allowed: NAME=value"),
        (wrong("tenants", 0, "environment", to=["A=1\nB=2"]), "environment: .* on one line"),
        (
            wrong("tenants", 0, "volumes", 0, "hostPath", to="/etc"),
            "hostPath: '/etc'; allowed: .* /dltraining",
        ),
        (wrong("tenants", 0, "volumes", 0, "hostPath", to="/dltraining/../etc"), "hostPath: .*; allowed"),
        (wrong("tenants", 0, "volumes", 0, "hostPath", to="/dltraining/a,b"), "hostPath: .*; allowed"),
        (wrong("tenants", 0, "volumes", 0, "containerPath", to="work"), "containerPath: 'work'; allowed"),
        (
            wrong("tenants", 1, "volumes", to=[VOLUME]),
            "/dltraining/alice/x of bob and /dltraining/alice of alice",
        ),
        (wrong("tenants", 0, "volumes", to=[VOLUME, VOLUME]), "volumes: two at one containerPath"),
        (lambda: configs.service(slices={"tenants": []}), "exactly one of training, service and slices"),
    ],
)
def test_wrong_declarations_are_one_line(make: Callable[[], dict[str, Any]], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        config.parse(json.dumps(make()))


def test_data_may_be_read_by_all_where_nobody_writes_it() -> None:
    shared = {"hostPath": "/dltraining/datasets", "containerPath": "/data", "readOnly": True}
    found = config.parse(json.dumps(body({**ALICE, "volumes": [shared]}, {**BOB, "volumes": [shared]})))
    assert found.slices
    assert found.work_unit == "gpu-spot-slices.service"
    argv = docker.run_command(found.slices.tenants[0], Share(("GPU-1",), (3, 5), 8, 0), Path("/run/gpu-spot"))
    assert "type=bind,src=/dltraining/datasets,dst=/data,readonly" in argv
    assert argv[argv.index("--cpuset-cpus") + 1] == "3,5"


def test_a_share_survives_in_a_label(house: House) -> None:
    house.settle(ALICE)
    [found] = docker.running(SystemHost())
    assert dataclasses.asdict(found.share) == {
        "gpus": (GPUS[0],),
        "cpus": (1,),
        "memory_gib": 8,
        "port": 20000,
    }
