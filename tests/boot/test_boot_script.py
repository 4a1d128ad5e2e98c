"""The boot script where AWS is late."""

from __future__ import annotations

import time

from tests.boot.cloud import Fault
from tests.boot.metadata import ROLE
from tests.boot.rig import Rig, errors


def test_a_boot_outlasts_late_credentials_and_then_failing_storage(rig: Rig) -> None:
    late = time.monotonic() + 35
    rig.cloud.metadata.missing[ROLE] = late
    rig.cloud.shim.faults.append(Fault("s3", late + 10))
    machine = rig.machine("program")
    rig.booted(machine)
    assert time.monotonic() > late + 10
    rig.phase("first heartbeat", machine, lambda: rig.ready("program", machine))
    assert set(machine.restarts().values()) == {0}
    assert errors(machine) == []
