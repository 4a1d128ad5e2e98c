"""A training job: its volume, what it saves, and where it goes on."""

from __future__ import annotations

import re
from typing import Any

from tests.boot.machine import Machine
from tests.boot.rig import Rig, errors


def steps(machine: Machine, word: str) -> list[int]:
    """Return the steps that the job has named after a word, since PID 1 was started."""
    found = (re.search(rf"{word} (\d+)", line.text) for line in machine.lines())
    return [int(one[1]) for one in found if one]


def volumes(rig: Rig) -> list[Any]:
    """Return the data volumes that there are."""
    filters = [{"Name": "tag-key", "Values": ["gpu-spot:job"]}]
    found: list[Any] = rig.cloud.clients("ec2").describe_volumes(Filters=filters)["Volumes"]
    return [one for one in found if one["Size"] == 10]


def test_a_reboot_and_a_notice_lose_no_step(rig: Rig) -> None:
    machine = rig.machine("disk")
    rig.booted(machine)
    rig.phase("first step", machine, lambda: steps(machine, "^step"))
    [volume] = volumes(rig)
    assert machine.volumes == {volume["VolumeId"]}
    assert errors(machine) == []
    assert set(machine.restarts().values()) == {0}

    reached = steps(machine, "^step")[-1]
    rig.phases["shut down"] = round(machine.stop(), 1)
    assert machine.volumes == set()
    machine.boot()
    rig.phase("again in training", machine, lambda: steps(machine, "from step"))
    [resumed] = steps(machine, "from step")
    assert resumed >= reached
    assert [one["VolumeId"] for one in volumes(rig)] == [volume["VolumeId"]]

    rig.wait_for(lambda: steps(machine, "^step"))
    rig.cloud.notice(machine.instance, 120)
    rig.phases["released after a notice"] = round(rig.wait_for(lambda: not machine.volumes, 30), 1)
    assert [one["State"] for one in volumes(rig)] == ["available"]
    rig.cloud.terminate(machine.instance)
    rig.phases["hook completed"] = round(rig.wait_for(lambda: not rig.cloud.state(machine.instance), 20), 1)
    assert errors(machine) == []
    assert set(machine.restarts().values()) == {0}
