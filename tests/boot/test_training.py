"""A training job: its volume, what it saves, and where it goes on."""

from __future__ import annotations

import re
from typing import Any

from tests.boot.machine import Machine
from tests.boot.rig import Rig, errors, undisturbed


def steps(machine: Machine, word: str) -> list[int]:
    """Return the steps that the job has named after a word, since PID 1 was started."""
    found = (re.search(rf"{word} (\d+)", line.text) for line in machine.lines())
    return [int(one[1]) for one in found if one]


def volumes(rig: Rig, job: str) -> list[Any]:
    """Return the data volumes of a job."""
    kinds = [("tag:gpu-spot:job", [job]), ("tag:Name", ["DL-datasets-checkpoints"])]
    filters = [{"Name": name, "Values": values} for name, values in kinds]
    found: list[Any] = rig.cloud.clients("ec2").describe_volumes(Filters=filters)["Volumes"]
    return found


def test_a_reboot_and_a_notice_lose_no_step(rig: Rig) -> None:
    machine = rig.machine("disk")
    rig.booted(machine)
    rig.phase("first step", machine, lambda: steps(machine, "^step"))
    [volume] = volumes(rig, "disk")
    assert machine.volumes == {volume["VolumeId"]}
    undisturbed(machine)

    rig.sizes(machine)
    reached = steps(machine, "^step")[-1]
    rig.phases["shut down"] = round(machine.stop(), 1)
    assert machine.volumes == set()
    machine.boot()
    rig.phase("again in training", machine, lambda: steps(machine, "from step"))
    assert "fsfreeze" not in machine.run("journalctl --boot=-1 --unit=gpu-spot-run.service --output=cat")
    [resumed] = steps(machine, "from step")
    assert resumed >= reached
    assert [one["VolumeId"] for one in volumes(rig, "disk")] == [volume["VolumeId"]]

    rig.wait_for(lambda: steps(machine, "^step"))
    rig.cloud.notice(machine.instance, 120)
    rig.measure("released after a notice", lambda: not machine.volumes)
    assert [one["State"] for one in volumes(rig, "disk")] == ["available"]
    rig.cloud.terminate(machine.instance)
    rig.measure("hook completed", lambda: not rig.cloud.state(machine.instance))
    undisturbed(machine)


def test_a_volume_that_cannot_be_formatted_ends_the_run_with_a_reason(rig: Rig) -> None:
    failing = {"usr/local/sbin/mkfs.xfs": "#!/bin/sh\necho 'no such thing' >&2\nexit 1\n"}
    machine = rig.machine("unformatted", programs=failing)
    rig.booted(machine)

    def ended() -> list[str]:
        written = (line.body for line in machine.lines() if line.body.get("event") == "job state written")
        return [one["reason"] for one in written if one["state"] == "failed"]

    rig.phase("ended with a reason", machine, ended)
    assert "mkfs.xfs: exit 1: no such thing" in ended()[0]
    # No start of a unit makes a volume more than the three that are tried.
    rig.wait_for(lambda: machine.show("gpu-spot-run.service", "ActiveState") == "inactive")
    assert 1 <= len(volumes(rig, "unformatted")) <= 3


def test_checkpoints_on_efs_outlive_a_crash_and_a_loss_of_power(rig: Rig) -> None:
    machine = rig.machine("files")
    rig.booted(machine)
    rig.phase("first checkpoint", machine, lambda: 75 in steps(machine, "^step"))
    # Without a data volume nothing waits for its unit.
    shown = [machine.show(f"gpu-spot-{name}.service", "ActiveState") for name in ("efs", "volume")]
    assert shown == ["active", "inactive"]
    undisturbed(machine)

    machine.kill("gpu-spot-run.service")
    rig.measure("in training after a kill", lambda: len(steps(machine, "from step")) == 2)
    assert steps(machine, "from step")[-1] >= 50
    assert machine.restarts()["gpu-spot-run.service"] == 1

    machine.cut()
    machine.boot()
    rig.phase("in training after a loss of power", machine, lambda: steps(machine, "from step"))
    assert steps(machine, "from step")[-1] >= 50
    undisturbed(machine)


def test_a_job_in_a_container_saves_at_a_shutdown_and_goes_on(rig: Rig) -> None:
    machine = rig.machine("contained")
    rig.booted(machine)
    rig.phase("first step", machine, lambda: steps(machine, "^step"))
    assert any(line.text.endswith("the specification") for line in machine.lines())
    assert errors(machine) == []
    rig.phases["shut down"] = round(machine.stop(), 1)
    machine.boot()
    rig.phase("again in training", machine, lambda: steps(machine, "from step"))
    assert steps(machine, "from step")[0] >= 1
    undisturbed(machine)
