"""Lives with faults at random calls: what is left is exactly what is meant to be."""

from __future__ import annotations

import contextlib
import random
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from contracts.agent.names import SNAPSHOT_NAME, TAG_STATE
from lambdas.core.model import GroupRole
from tests.boot.cloud import Strike
from tests.boot.rig import Rig
from tests.boot.test_training import steps, volumes

LIVES = 200


class _Life:
    """One machine, and faults at calls that it makes."""

    def __init__(self, rig: Rig, chance: random.Random) -> None:
        self._rig, self.chance = rig, chance
        self.faults: list[str] = []
        self._cuts = 0
        self.kind = chance.choice(("disk", "disk", "contained", "boxed"))
        side = GroupRole.FALLBACK if self.kind == "boxed" else GroupRole.PRIMARY
        # A job's volume moves to the zone of its machine.
        self.machine = rig.machine(self.kind, side, zone=chance.randrange(2))
        for _ in range(chance.randint(1, 3)):
            name, act = chance.choice(self._acts())
            calls, is_done = chance.randrange(40), chance.random() < 0.5
            self.faults.append(f"{name} at call {calls}{' that took effect' * is_done}")
            rig.cloud.shim.strikes.append(Strike(self.machine.address, calls, act, is_done))

    def _acts(self) -> list[tuple[str, Callable[[], object]]]:
        units = {"disk": ("run", "volume"), "contained": ("run", "volume"), "boxed": ("work", "prepare")}
        kill = "systemctl kill --kill-whom=main --signal=KILL gpu-spot-"
        kills = [(f"kill {unit}", self._run(f"{kill}{unit}")) for unit in ("watch", *units[self.kind])]
        restart = self._run("systemctl restart --no-block docker")
        return [("error", lambda: None), ("power", self._cut), ("docker", restart), *kills]

    def _run(self, command: str) -> Callable[[], object]:
        return lambda: self.machine.run(command, check=False)

    def _cut(self) -> None:
        self._cuts += 1

    def wait(self, reached: Callable[[], object]) -> None:
        """Wait until something is reached; a machine without power is booted again."""

        def is_reached() -> bool:
            if self._cuts:
                # From this thread: a machine ends with the one that booted it.
                self._cuts = 0
                self.machine.cut()
                self.machine.boot()
            with contextlib.suppress(AssertionError, subprocess.SubprocessError):  # it boots
                return bool(reached())
            return False

        self._rig.wait_for(is_reached)

    def works(self) -> bool:
        """Return whether it has begun its work."""
        if self.kind == "boxed":
            return self._rig.ready(self.kind, self.machine)
        return bool(steps(self.machine, "^step"))


def states(rig: Rig, job: str) -> tuple[list[Any], list[Any]]:
    """Return the state and attachments of each data volume of a job, and the state of each snapshot."""
    kinds = [("tag:gpu-spot:job", [job]), ("tag:Name", [SNAPSHOT_NAME])]
    filters = [{"Name": name, "Values": values} for name, values in kinds]
    snapshots = rig.cloud.clients("ec2").describe_snapshots(Filters=filters)["Snapshots"]
    disks = [(_state(one), one["State"], len(one["Attachments"])) for one in volumes(rig, job)]
    return disks, [_state(one) for one in snapshots]


def _state(resource: dict[str, Any]) -> str:
    return next((tag["Value"] for tag in resource["Tags"] if tag["Key"] == TAG_STATE), "")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(LIVES))
def test_after_a_life_with_faults_nothing_is_left_over(rig: Rig, seed: int) -> None:
    life = _Life(rig, random.Random(f"life {seed}"))
    machine = life.machine
    try:
        life.wait(life.works)
        if life.kind == "boxed":
            running = "docker ps --all --quiet --filter name=gpu-spot"
            life.wait(lambda: machine.run(running))  # Docker may be starting again
            assert len(machine.run(running).split()) == 1
            assert rig.cloud.state(machine.instance) == "InService"
        else:
            rig.cloud.notice(machine.instance, 120)
            time.sleep(life.chance.random() * 3)  # the notice is read before the scale-in, or with it
        rig.cloud.terminate(machine.instance)
        life.wait(lambda: not rig.cloud.state(machine.instance) or not machine.runs)
        assert not rig.cloud.state(machine.instance)
        if life.kind != "boxed":
            life.wait(lambda: states(rig, life.kind)[0] == [("live", "available", 0)])
            assert len(states(rig, life.kind)[1]) <= 1
        assert not [one for one in rig.cloud.workers(life.kind) if one.instance == machine.instance]
    except BaseException as error:
        error.add_note(f"{life.kind}: {', '.join(life.faults)}; {states(rig, life.kind)}")
        raise
    finally:
        rig.cloud.shim.strikes.clear()
