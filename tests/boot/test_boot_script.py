"""The boot script where AWS is late."""

from __future__ import annotations

import time

from lambdas.core.model import GroupRole
from tests.boot.metadata import ROLE, Fault
from tests.boot.rig import Rig, undisturbed


def test_a_boot_outlasts_late_credentials_and_then_failing_storage(rig: Rig) -> None:
    late = time.monotonic() + 35
    rig.cloud.faults += [Fault("metadata", late, ROLE, 404), Fault("s3", late + 10)]
    machine = rig.machine("program")
    rig.booted(machine)
    assert time.monotonic() > late + 10
    rig.phase("first heartbeat", machine, lambda: rig.ready("program", machine))
    undisturbed(machine)


def test_a_boot_that_fails_is_counted_and_gives_its_launch_up(rig: Rig) -> None:
    """The archive is not the one that user data names; the group replaces the instance at once."""
    machine = rig.machine("boxed", GroupRole.FALLBACK, {"usr/local/sbin/sha256sum": "#!/bin/sh\nexit 1\n"})
    rig.phase("given up", machine, lambda: rig.cloud.state(machine.instance).startswith("Terminating"))
    assert rig.cloud.shim.times("PutMetricData", machine.address)
    said = (machine.disk / "var/log/cloud-init-output.log").read_text()
    assert "gpu-spot boot: FAILED with status 1: verify that its SHA-256 is " in said
    assert machine.units() == []
