"""Minutes without AWS at each phase of a machine's life, and a full disk."""

from __future__ import annotations

import time
from datetime import datetime

import pytest

from tests.boot.cloud import Fault
from tests.boot.machine import Machine
from tests.boot.rig import Rig, errors
from tests.boot.test_service import DRAIN_SECONDS, said
from tests.boot.test_training import steps, volumes

SECONDS = 180.0
SERVICES = ("dynamodb", "ssm", "ec2", "autoscaling", "monitoring", "secretsmanager", "s3")
KINDS = ("no metadata", "errors of AWS", "no answer of AWS")


def begin_outage(rig: Rig, kind: str, seconds: float) -> float:
    """Let AWS, or the metadata service, not answer for a while; return when it does again."""
    until = time.monotonic() + seconds
    if kind == "no metadata":
        rig.cloud.metadata.silent["/"] = until
    else:
        silent = kind == "no answer of AWS"
        rig.cloud.shim.faults += [Fault(one, until, is_silent=silent) for one in SERVICES]
    return until


def works(rig: Rig, group: str, machine: Machine) -> bool:
    """Return whether a machine has begun its work."""
    return bool(steps(machine, "^step")) if group == "disk" else rig.ready(group, machine)


@pytest.mark.soak
@pytest.mark.parametrize("group", ["program", "disk"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_boot_outlasts_minutes_without_aws(rig: Rig, kind: str, group: str) -> None:
    until = begin_outage(rig, kind, SECONDS)
    machine = rig.machine(group)
    rig.wait_for(lambda: time.monotonic() > until)
    rig.booted(machine)
    rig.phase("works", machine, lambda: works(rig, group, machine))
    assert set(machine.restarts().values()) == {0}


@pytest.mark.soak
@pytest.mark.parametrize("group", ["program", "disk"])
@pytest.mark.parametrize("kind", KINDS)
def test_work_outlives_minutes_without_aws(rig: Rig, kind: str, group: str) -> None:
    machine = rig.machine(group)
    rig.phase("works", machine, lambda: works(rig, group, machine))
    began, starts = time.time(), (len(said(machine, "started")), len(steps(machine, "from step")))
    until = begin_outage(rig, kind, SECONDS)
    rig.wait_for(lambda: time.monotonic() > until)
    if group == "disk":
        reached = steps(machine, "^step")[-1]
        rig.wait_for(lambda: steps(machine, "^step")[-1] > reached + 100)
        assert [one["State"] for one in volumes(rig, "disk")] == ["in-use"]
    else:
        rig.heartbeats_come("heartbeat after it", group, machine)
    assert (len(said(machine, "started")), len(steps(machine, "from step"))) == starts
    assert_well(machine, began, time.time())


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [(KINDS[-1], 12.0), *(pytest.param(kind, SECONDS, marks=pytest.mark.soak) for kind in KINDS)],
)
def test_a_drain_is_in_time_without_aws(rig: Rig, kind: str, seconds: float) -> None:
    """The outage begins when the notice is read; the hook is completed once AWS answers, in the time left."""
    machine = rig.machine("program")
    rig.phase("first heartbeat", machine, lambda: rig.ready("program", machine))
    began, deadline = time.time(), time.time() + DRAIN_SECONDS + 10
    rig.cloud.notice(machine.instance, deadline - time.time())
    rig.cloud.terminate(machine.instance)
    rig.wait_for(lambda: machine.run("ls /run/gpu-spot/notice.json", check=False))
    begin_outage(rig, kind, seconds)
    rig.wait_for(lambda: len(said(machine, "ended")) == 2)
    # At a scale-in, read first, workers end at once; at a Spot notice when their drain begins.
    assert all(at < deadline - DRAIN_SECONDS + 2 for at in said(machine, "term"))
    if seconds < SECONDS:
        rig.measure("hook completed", lambda: not rig.cloud.state(machine.instance))
    assert_well(machine, began, time.time() + SECONDS)  # the outage may go on


@pytest.mark.soak
def test_workers_outlive_a_full_disk(rig: Rig) -> None:
    machine = rig.machine("program")
    rig.phase("first heartbeat", machine, lambda: rig.ready("program", machine))
    started, began = len(said(machine, "started")), time.time()
    machine.run("cat /dev/zero >/fill 2>/dev/null; df / | grep 100%", 120)
    full = time.monotonic() + 60
    rig.wait_for(lambda: time.monotonic() > full)
    rig.heartbeats_come("heartbeat with a full disk", "program", machine)
    machine.run("rm /fill")
    rig.heartbeats_come("heartbeat after it", "program", machine)
    assert len(said(machine, "started")) == started
    assert len(said(machine, "term")) == 0
    assert_well(machine, began, time.time())


def assert_well(machine: Machine, began: float, ended: float) -> None:
    """Assert that no unit was restarted, and that each error is of the time between."""
    assert set(machine.restarts().values()) == {0}
    at = [datetime.fromisoformat(line.body["time"]).timestamp() for line in errors(machine)]
    assert not [one for one in at if not began <= one <= ended]
