"""A service whose workers are a program of the machine image, from user data to its end."""

from __future__ import annotations

import time

from contracts.agent.names import UNIT_WORK
from tests.boot.machine import Machine
from tests.boot.rig import Rig, errors, undisturbed
from userdata.agent.aws.imds import REBALANCE

UNITS = ("gpu-spot-metrics.service", "gpu-spot-watch.service", UNIT_WORK)
DRAIN_SECONDS = 20.0


def said(machine: Machine, word: str) -> list[float]:
    """Return when workers wrote a word."""
    lines = machine.run("cat /var/tmp/worker-*-[0-9]*[0-9]", check=False).splitlines()
    return sorted(float(line.split()[1]) for line in lines if line.startswith(word))


def environments(machine: Machine) -> list[str]:
    """Return the variables of each worker."""
    files = machine.run("ls /var/tmp/worker-*.env").split()
    return [machine.run(f"cat {file}").strip() for file in files]


def assert_in_time(machine: Machine, deadline: float) -> None:
    """Assert when SIGTERM came: requests go on until the drain. The notice's time is in whole seconds."""
    assert all(-4.0 < deadline - at - DRAIN_SECONDS < 2.0 for at in said(machine, "term"))


def test_its_workers_survive_crashes_and_a_loss_of_power_and_drain_in_time(rig: Rig) -> None:
    machine = rig.machine("program")
    rig.booted(machine)
    rig.phase("first heartbeat", machine, lambda: rig.ready("program", machine))
    assert set(machine.units()) == set(UNITS)
    undisturbed(machine)

    rig.sizes(machine)
    [environment, _] = [
        dict(line.split("=", 1) for line in text.split("\n")) for text in environments(machine)
    ]
    assert environment["USER"] == "gpu-spot-job"
    assert not {"PYTHONPATH", "PYTHONUNBUFFERED", "INVOCATION_ID", "JOURNAL_STREAM"} & environment.keys()

    # What unattended upgrades do after the update of a library that all of them have loaded.
    before = [machine.show(unit, "InvocationID") for unit in UNITS]
    machine.run("cd /usr/lib/x86_64-linux-gnu && cp -L libz.so.1 new && mv new $(readlink libz.so.1)")
    assert "gpu-spot-work.service" in machine.run("needrestart -b -r l -p; needrestart -v -r a 2>&1", 60)
    assert [machine.show(unit, "InvocationID") for unit in UNITS] == before
    # And the night's upgrade, which begins once our setting is gone.
    daily = "/usr/lib/apt/apt.systemd.daily install; cat /var/log/unattended-upgrades/unattended-upgrades.log"
    assert machine.run(daily, check=False) == ""
    assert "Starting unattended upgrades" in machine.run(f"rm /etc/apt/apt.conf.d/99gpu-spot; {daily}")

    machine.kill(*UNITS)
    rig.measure("ready after kills", lambda: rig.ready("program", machine))
    assert machine.restarts() == dict.fromkeys(UNITS, 1)

    machine.run("sed -i s/WORKER_DRAINS:-1/WORKER_DRAINS:-14/ /opt/work/worker")  # longer than RestartSec
    machine.cut()
    machine.boot()
    rig.phase("ready after a loss of power", machine, lambda: rig.ready("program", machine))
    undisturbed(machine)

    rig.cloud.metadata.more[machine.address] = {REBALANCE: '{"noticeTime": "2026-11-29T00:00:00Z"}'}
    rig.measure("hint", lambda: machine.run("ls /run/gpu-spot/rebalance.json", check=False))

    deadline = time.time() + DRAIN_SECONDS + 20  # time for the next watcher, also on a busy machine
    rig.cloud.notice(machine.instance, deadline - time.time())
    rig.wait_for(lambda: machine.run("ls /run/gpu-spot/notice.json", check=False))
    machine.kill("gpu-spot-watch.service")
    rig.wait_for(lambda: len(said(machine, "term")) == 2)
    assert_in_time(machine, deadline)
    # The agent is killed: its workers go on, and the next one, started after 10 s, waits for them.
    started = len(said(machine, "started"))
    machine.kill(UNIT_WORK)
    rig.cloud.terminate(machine.instance)
    rig.wait_for(lambda: len(said(machine, "ended")) == 2)
    rig.wait_for(lambda: not rig.cloud.workers("program"))
    rig.measure("hook completed", lambda: not rig.cloud.state(machine.instance))
    assert (len(said(machine, "term")), len(said(machine, "started"))) == (2, started)
    assert machine.restarts() == {**dict.fromkeys(UNITS, 1), "gpu-spot-metrics.service": 0}
    assert errors(machine) == []
