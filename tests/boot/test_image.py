"""A service whose workers are containers of an image in ECR, on both sides."""

from __future__ import annotations

import time

from lambdas.core.model import GroupRole
from tests.boot.machine import Machine
from tests.boot.metadata import Fault
from tests.boot.rig import Rig, undisturbed

UNITS = {"gpu-spot-metrics.service", "gpu-spot-watch.service", "gpu-spot-work.service"}
OLD_TOOLKIT = {"usr/lib/systemd/system/nvidia-cdi-refresh.service": ""}


def containers(machine: Machine) -> str:
    """Return which containers run."""
    return machine.run("docker ps --no-trunc --quiet")


def test_a_launch_hook_is_completed_once_the_image_is_there_and_a_restart_of_docker_is_survived(
    rig: Rig,
) -> None:
    machine = rig.machine("boxed", GroupRole.FALLBACK)
    assert rig.cloud.state(machine.instance) == "Pending:Wait"
    rig.booted(machine)
    rig.phase("hook completed", machine, lambda: rig.cloud.state(machine.instance) == "InService")
    rig.phase("first heartbeat", machine, lambda: rig.ready("boxed", machine))
    assert set(machine.units()) == {*UNITS, "gpu-spot-prepare.service"}
    undisturbed(machine)

    rig.sizes(machine)
    before = containers(machine)
    machine.run("systemctl restart docker", 60)
    rig.measure("container after Docker's restart", lambda: containers(machine) not in ("", before))
    assert set(machine.restarts().values()) == {0}


def test_without_a_hook_and_with_an_old_toolkit_containers_get_their_gpu(rig: Rig) -> None:
    machine = rig.machine("boxed", programs=OLD_TOOLKIT)
    rig.booted(machine)
    rig.phase("first heartbeat", machine, lambda: rig.ready("boxed", machine))
    assert set(machine.units()) == UNITS
    assert "GPU_OF=the specification" in machine.run("docker exec gpu-spot-0 cat /proc/1/environ")
    assert set(machine.restarts().values()) == {0}
    assert_untouched_by_silence(rig, machine)


def assert_untouched_by_silence(rig: Rig, machine: Machine) -> None:
    """Let AWS answer nothing for a while: the worker goes on, and its heartbeats come back."""
    before, until = containers(machine), time.monotonic() + 25
    rig.cloud.faults.append(Fault("metadata", until, is_silent=True))
    rig.cloud.faults += [Fault(service, until) for service in ("dynamodb", "ssm", "ec2", "autoscaling")]
    rig.wait_for(lambda: time.monotonic() > until)
    rig.heartbeats_come("heartbeat after silence", "boxed", machine)
    assert containers(machine) == before
    assert set(machine.restarts().values()) == {0}


def test_an_instance_of_the_warm_pool_prepares_waits_and_works_soon_after_its_start(rig: Rig) -> None:
    machine = rig.machine("boxed", GroupRole.FALLBACK, is_warm=True)
    rig.booted(machine)
    rig.phase("hook completed", machine, lambda: rig.cloud.state(machine.instance) == "InService")
    rig.phases["stopped"] = round(machine.stop(), 1)
    assert not any(one.instance == machine.instance for one in rig.cloud.workers("boxed"))

    rig.cloud.metadata.warm(machine.address, is_warm=False)
    machine.boot()
    rig.phase("first heartbeat after a warm start", machine, lambda: rig.ready("boxed", machine))
    undisturbed(machine)
