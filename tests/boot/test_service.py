"""A service, from user data to the first heartbeat and to its end."""

from __future__ import annotations

from tests.boot.rig import Rig, errors


def test_workers_of_a_program_report_after_a_boot(rig: Rig) -> None:
    machine = rig.machine("program")
    rig.booted(machine)
    rig.phase("first heartbeat", machine, lambda: rig.ready("program", machine))
    assert set(machine.units()) == {
        "gpu-spot-metrics.service",
        "gpu-spot-watch.service",
        "gpu-spot-work.service",
    }
    assert set(machine.restarts().values()) == {0}
    assert errors(machine) == []
