"""Long lives of a service's machine: minutes without AWS, and a full disk."""

from __future__ import annotations

import time
from datetime import datetime

import pytest

from tests.boot.cloud import Fault
from tests.boot.rig import Rig, errors
from tests.boot.test_service import said

SECONDS = 180.0
SERVICES = ("dynamodb", "ssm", "ec2", "autoscaling", "monitoring", "secretsmanager")


@pytest.mark.soak
def test_workers_outlive_minutes_without_aws_and_a_full_disk(rig: Rig) -> None:
    machine = rig.machine("program")
    rig.booted(machine)
    rig.phase("first heartbeat", machine, lambda: rig.ready("program", machine))
    started, faulty = len(said(machine, "started")), list[tuple[float, float]]()

    for kind in ("no metadata", "errors of AWS", "no answer of AWS"):
        until, began = time.monotonic() + SECONDS, time.time()
        if kind == "no metadata":
            rig.cloud.metadata.silent["/"] = until
        else:
            silent = kind == "no answer of AWS"
            rig.cloud.shim.faults += [Fault(one, until, is_silent=silent) for one in SERVICES]
        rig.wait_for(lambda until=until: time.monotonic() > until, SECONDS + 20)  # type: ignore[misc]
        rig.phases[f"heartbeat after {SECONDS:g} s: {kind}"] = rig.heartbeats_come("program", machine)
        faulty.append((began, time.time()))

    began = time.time()
    machine.run("cat /dev/zero >/fill 2>/dev/null; df / | grep 100%", 120)
    full = time.monotonic() + 60
    rig.wait_for(lambda: time.monotonic() > full, 80)
    rig.heartbeats_come("program", machine)
    machine.run("rm /fill")
    rig.heartbeats_come("program", machine)
    faulty.append((began, time.time()))
    assert len(said(machine, "started")) == started
    assert len(said(machine, "term")) == 0
    assert set(machine.restarts().values()) == {0}
    at = [datetime.fromisoformat(line.body["time"]).timestamp() for line in errors(machine)]
    assert not [one for one in at if not any(start <= one <= end for start, end in faulty)]
