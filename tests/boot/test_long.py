"""Machines that are disturbed in each phase of a life: minutes without AWS, killed units, a full disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

import pytest

from lambdas.core.model import GroupRole
from tests.boot.machine import Machine
from tests.boot.metadata import Fault
from tests.boot.rig import Rig, errors
from tests.boot.test_image import containers
from tests.boot.test_service import DRAIN_SECONDS, said
from tests.boot.test_training import steps, volumes

SECONDS: Final = 180.0
PHASES: Final = ("boot", "work", "drain")
CALLED: Final = {
    "program": ("metadata s3 ssm dynamodb aws", "metadata dynamodb aws", "metadata dynamodb autoscaling aws"),
    "disk": (
        "metadata s3 ssm dynamodb ec2 aws",
        "metadata dynamodb ec2 aws",
        "metadata dynamodb ec2 autoscaling aws",
    ),
    "boxed": ("metadata autoscaling ecr", "metadata dynamodb", ""),
}
"""The services that an entry's machine calls, by phase; ``aws`` is all of them but the metadata."""
AWS: Final = ["dynamodb", "ssm", "ec2", "autoscaling", "monitoring", "secretsmanager", "s3", "ecr"]
OUTAGES: Final = [
    (phase, group, service, kind)
    for phase_number, phase in enumerate(PHASES)
    for group, called in CALLED.items()
    for service in called[phase_number].split()
    for kind in ("silent", "errors")
]
UNITS: Final = {
    "program": "watch metrics work",
    "disk": "watch metrics volume run",
    "boxed": "watch prepare work",
}
KILLS: Final = [
    (phase, group, unit) for phase in PHASES for group, units in UNITS.items() for unit in units.split()
]


def live(rig: Rig, group: str, phase: str, disturb: Callable[[Machine], float]) -> Machine:
    """Let a machine live that is disturbed: from its boot, at work, or from the notice on.

    ``disturb`` returns until when. The work ends in time, the hook is completed once, nothing is made twice.
    """
    machine = rig.machine(group, GroupRole.FALLBACK if group == "boxed" else GroupRole.PRIMARY)
    disturbed = [0.0, 0.0]

    def now(reached: str) -> None:
        if reached == phase:
            disturbed[:] = time.time(), disturb(machine)

    now("boot")
    rig.phase("works", machine, lambda: works(rig, group, machine))
    now("work")
    rig.wait_for(lambda: time.time() > disturbed[1] and rig.cloud.state(machine.instance) == "InService")
    if group == "disk":
        reached = steps(machine, "^step")[-1]
        rig.measure("steps after it", lambda: steps(machine, "^step")[-1] > reached + 100)
    else:
        rig.heartbeats_come("heartbeat after it", group, machine)

    deadline = time.time() + (120 if group == "disk" else DRAIN_SECONDS + 10)
    if group != "boxed":
        rig.cloud.notice(machine.instance, deadline - time.time())
    rig.cloud.terminate(machine.instance)
    if phase == "drain":
        rig.wait_for(lambda: machine.run("ls /run/gpu-spot/notice.json", check=False))
    now("drain")
    rig.measure("drained", lambda: is_drained(group, machine))
    assert time.time() < deadline
    rig.measure("hook completed", lambda: not rig.cloud.state(machine.instance))

    def completed() -> int:
        return [line.body.get("event") for line in machine.lines()].count("lifecycle hook completed")

    hooks = 2 if group == "boxed" else 1
    rig.wait_for(lambda: completed() >= hooks)  # the agent says so after the call
    assert completed() == hooks
    if group == "disk":
        assert [(one["State"], one["Attachments"]) for one in volumes(rig, group)] == [("available", [])]
    at = [datetime.fromisoformat(line.body["time"]).timestamp() for line in errors(machine)]
    assert not [one for one in at if not disturbed[0] <= one <= disturbed[1] + 15]
    return machine


def works(rig: Rig, group: str, machine: Machine) -> bool:
    """Return whether a machine has begun its work."""
    return bool(steps(machine, "^step")) if group == "disk" else rig.ready(group, machine)


def starts(machine: Machine) -> int:
    """Return how often a process of the work has begun it, or a container was started."""
    workers = [line for line in machine.lines() if line.body.get("event") == "worker started"]
    return len(workers) + len(steps(machine, "from step"))


def is_drained(group: str, machine: Machine) -> bool:
    """Return whether the work has ended as it does at a notice."""
    if group == "disk":
        return bool(steps(machine, "saved at step"))
    return len(said(machine, "ended")) == 2 if group == "program" else containers(machine) == ""


@pytest.mark.parametrize(
    ("phase", "group", "service", "kind", "seconds"),
    [
        ("drain", "program", "aws", "silent", 12.0),
        *(pytest.param(*outage, SECONDS, marks=pytest.mark.soak) for outage in OUTAGES),
    ],
)
def test_a_life_outlasts_minutes_without_a_service(
    rig: Rig, phase: str, group: str, service: str, kind: str, seconds: float
) -> None:
    def fail(machine: Machine) -> float:
        until = time.monotonic() + seconds
        names = AWS if service == "aws" else [service]
        rig.cloud.faults += [Fault(name, until, is_silent=kind == "silent") for name in names]
        return time.time() + seconds

    machine = live(rig, group, phase, fail)
    restarted = {unit for unit, count in machine.restarts().items() if count}
    # Preparing is tried again; what could not be released is released at its unit's next start.
    again = {"boot": "prepare volume run work", "drain": "run" * (service in ("dynamodb", "aws"))}
    assert restarted <= {f"gpu-spot-{unit}.service" for unit in again.get(phase, "").split()}
    assert starts(machine) == (2 if group == "program" else 1)


@pytest.mark.soak
@pytest.mark.parametrize(("phase", "group", "unit"), KILLS)
def test_a_life_outlasts_a_killed_unit(rig: Rig, phase: str, group: str, unit: str) -> None:
    name = f"gpu-spot-{unit}.service"

    def kill(machine: Machine) -> float:
        if phase == "boot":
            rig.wait_for(lambda: int(machine.run(f"systemctl show -P MainPID {name}", check=False) or 0))
        machine.run(f"systemctl kill --kill-whom=main --signal=KILL {name}", check=False)
        return time.time()

    machine = live(rig, group, phase, kill)
    ends = phase == "drain" or machine.show(name, "Type") == "oneshot"
    killed = {one: count for one, count in machine.restarts().items() if count}
    assert killed == {name: 1} or (ends and not killed)
    assert 0 <= starts(machine) - (2 if group == "program" else 1) <= (2 if unit in ("work", "run") else 0)


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
    assert set(machine.restarts().values()) == {0}
    at = [datetime.fromisoformat(line.body["time"]).timestamp() for line in errors(machine)]
    assert not at or began <= min(at)
