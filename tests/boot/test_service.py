"""A service whose workers are a program of the machine image, from user data to its end."""

from __future__ import annotations

import time

from tests.boot.machine import Machine
from tests.boot.rig import Rig, errors

UNITS = ("gpu-spot-metrics.service", "gpu-spot-watch.service", "gpu-spot-work.service")
DRAIN_SECONDS = 20.0


def said(machine: Machine, word: str) -> list[float]:
    """Return when workers wrote a word."""
    lines = machine.run("cat /var/tmp/worker-*-[0-9]*[0-9]", check=False).splitlines()
    return sorted(float(line.split()[1]) for line in lines if line.startswith(word))


def test_its_workers_survive_crashes_and_a_loss_of_power_and_drain_in_time(rig: Rig) -> None:
    machine = rig.machine("program")
    rig.booted(machine)
    rig.phase("first heartbeat", machine, lambda: rig.ready("program", machine))
    assert set(machine.units()) == set(UNITS)
    assert set(machine.restarts().values()) == {0}
    assert errors(machine) == []

    machine.kill(*UNITS)
    rig.phases["ready after kills"] = round(rig.wait_for(lambda: rig.ready("program", machine)), 1)
    assert machine.restarts() == dict.fromkeys(UNITS, 1)

    machine.cut()
    machine.boot()
    rig.phase("ready after a loss of power", machine, lambda: rig.ready("program", machine))
    assert set(machine.restarts().values()) == {0}
    assert errors(machine) == []

    deadline = time.time() + DRAIN_SECONDS + 6
    rig.cloud.notice(machine.instance, deadline - time.time())
    rig.wait_for(lambda: len(said(machine, "term")) == 2, 20)
    # Neither earlier nor later: requests go on until then. The document's time is in whole seconds.
    assert all(-2.0 < deadline - at - DRAIN_SECONDS < 2.0 for at in said(machine, "term"))
    rig.wait_for(lambda: len(said(machine, "ended")) == 2, 10)
    rig.wait_for(lambda: not rig.cloud.workers("program"), 10)
    rig.cloud.terminate(machine.instance)
    rig.phases["hook completed"] = round(rig.wait_for(lambda: not rig.cloud.state(machine.instance), 10), 1)
    assert set(machine.restarts().values()) == {0}
    assert errors(machine) == []
