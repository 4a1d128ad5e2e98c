"""Kinds of machines beside those of the other files, from user data to the end of their work."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path

from contracts.agent.names import UNIT_TENANT_SUPERVISOR, UNIT_WORK
from lambdas.core.model import GroupRole
from tests.boot import machine as machines
from tests.boot.metadata import credentials
from tests.boot.rig import Rig, errors, undisturbed
from tests.boot.test_service import DRAIN_SECONDS, assert_in_time, said
from tests.boot.test_training import steps

PAGE = Path(__file__).parents[2] / "docs" / "node-agent.md"


def test_a_program_on_the_fallback_side_completes_its_hook_and_works(rig: Rig) -> None:
    machine = rig.machine("program", GroupRole.FALLBACK)
    rig.booted(machine)
    rig.phase("hook completed", machine, lambda: rig.cloud.state(machine.instance) == "InService")
    rig.phase("first heartbeat", machine, lambda: rig.ready("program", machine))
    undisturbed(machine)


def test_a_job_has_a_python_environment_of_its_own_which_is_built_once(rig: Rig) -> None:
    machine = rig.machine("packaged")
    rig.booted(machine)
    rig.phase("first step", machine, lambda: steps(machine, "^step"))
    assert errors(machine) == []
    rig.phases["shut down"] = round(machine.stop(), 1)
    machine.boot()
    rig.phase("again in training", machine, lambda: steps(machine, "from step"))
    lines = [line.text for line in machine.lines()]
    [python] = [text for text in lines if text.endswith(" 1.17.0")]
    assert python.startswith("/dltraining/")
    assert any('"environment reused"' in text for text in lines)
    undisturbed(machine)


def test_several_nodes_of_a_job_have_one_place_each_and_keep_it_over_a_loss_of_power(rig: Rig) -> None:
    nodes = [rig.machine("several"), rig.machine("several")]

    def places() -> list[str]:
        found = (
            re.match(r"(several-\S+) of \S+ from step", one.text) for node in nodes for one in node.lines()
        )
        return [one[1] for one in found if one]

    for number, node in enumerate(nodes):
        rig.booted(node)
        rig.phase(f"first step of {number}", node, lambda node=node: steps(node, "^step"))  # type: ignore[misc]
    before = places()
    assert len(before) == len(set(before)) == 2

    lost, other = nodes
    reached = steps(lost, "^step")[-1]
    lost.cut()
    lost.boot()
    rig.phase("again in training", lost, lambda: steps(lost, "from step"))
    assert places() == before
    assert steps(lost, "from step")[0] >= reached - 5  # of a second, on a file system that is not synced
    for node in nodes:
        undisturbed(node)
    assert len(steps(other, "from step")) == 1


def test_a_host_on_premises_works_by_the_page_and_outlives_expired_credentials(rig: Rig) -> None:
    output = rig.cloud.local.deployment.outputs["onPremises"]["program"]
    bucket, _, key = output["archive"].removeprefix("s3://").partition("/")
    rig.cloud.clients("s3").download_file(bucket, key, str(rig.folder / "agent.zip"))
    login = {"Version": 1, **credentials()}
    login["SessionToken"] = login.pop("Token")
    machine = rig.own_host(
        "gpu-07",
        {
            "agent.json": output["agent"],
            "etc/gpu-spot/aws": "[default]\ncredential_process = cat /etc/gpu-spot/login\n",
            "etc/gpu-spot/login": json.dumps(login),
        },
    )
    shutil.copy(rig.folder / "agent.zip", machine.place / "own" / "agent.zip")
    rig.wait_for(
        lambda: machine.run("systemctl is-active multi-user.target", check=False).strip() == "active"
    )
    commands = PAGE.read_text().partition("\ninstall -D")[2].partition("\n```")[0].splitlines()
    for command in [f"install -D{commands[0]}", *commands[1:]]:
        if edited := re.match(r"systemctl edit (\S+) +# (\[Service\]) (.*)", command):
            folder = f"/etc/systemd/system/{edited[1]}.service.d"
            command = f"mkdir {folder} && printf '{edited[2]}\\n{edited[3]}\\n' >{folder}/override.conf"
        machine.run(command)
    rig.phase("first heartbeat", machine, lambda: rig.ready("program", machine))
    assert machine.units() == [UNIT_WORK]
    assert errors(machine) == []

    # Its workers go on while what the process gives has expired, and are reported when it gives more.
    machine.run(f"sed -i s/ASIA[0-9]*/ASIA1/ /etc/gpu-spot/login; systemctl restart {UNIT_WORK}", 60)
    rig.wait_for(lambda: len(said(machine, "started")) == 4)
    machine.run(f"echo '{json.dumps(login)}' >/etc/gpu-spot/login; systemctl restart {UNIT_WORK}", 60)
    rig.heartbeats_come("heartbeat by new credentials", "program", machine)
    rig.measure("drained", lambda: machine.run(f"systemctl stop {UNIT_WORK}", 60) == "")
    assert not [one for one in rig.cloud.workers("program") if one.instance == machine.instance]
    assert set(machine.restarts().values()) == {0}


def test_a_shared_hosts_tenant_outlives_a_kill_of_the_supervisor(rig: Rig) -> None:
    """On control groups of either version, but ``io.max`` of a tenant's disks is in version 2 only."""
    machine = rig.machine("shared")
    machine.resize("12g")  # 10 GiB have to be free for an image
    rig.booted(machine)
    rig.phase("first heartbeat", machine, lambda: rig.ready("shared", machine))
    undisturbed(machine)
    before = machine.run("docker ps --quiet --no-trunc --filter name=tenant").strip()
    limits = machine.run(f"docker inspect --format '{{{{.HostConfig.Memory}}}}' {before}")
    assert int(limits) == 2 * 2**30
    if machines.hierarchies() == [machines._CGROUPS]:
        path = machine.run(f"cat /proc/$(docker inspect --format '{{{{.State.Pid}}}}' {before})/cgroup")
        assert machine.run(f"cat /sys/fs/cgroup{path.partition('::')[2].strip()}/io.max")

    machine.kill(UNIT_TENANT_SUPERVISOR)
    rig.wait_for(lambda: machine.restarts()[UNIT_TENANT_SUPERVISOR] == 1)
    rig.heartbeats_come("heartbeat after a kill", "shared", machine)
    assert machine.run("docker ps --quiet --no-trunc --filter name=tenant").strip() == before


CLOCK = "[Service]\nEnvironment=LD_PRELOAD=/usr/lib/x86_64-linux-gnu/clock.so\n"
"""The wall clock of our units, not of their workers, is that of /etc/agents-clock."""


def test_a_clock_that_steps_disturbs_no_drain(rig: Rig) -> None:
    given = {"etc/systemd/system/gpu-spot-.service.d/clock.conf": CLOCK, "etc/agents-clock": "0"}
    machine = rig.machine("program", programs=given)
    rig.booted(machine)
    rig.phase("first heartbeat", machine, lambda: rig.ready("program", machine))

    def reported() -> list[float]:
        return [one.heartbeat for one in rig.cloud.workers("program") if one.instance == machine.instance]

    machine.run("echo 3600 >/etc/agents-clock")
    rig.wait_for(lambda: min(reported()) > time.time() + 3000)
    machine.run("echo -600 >/etc/agents-clock")
    rig.wait_for(lambda: max(reported()) < time.time() - 500)
    deadline = time.time() + DRAIN_SECONDS + 10
    rig.cloud.notice(machine.instance, deadline - time.time())
    rig.wait_for(lambda: len(said(machine, "ended")) >= 2)
    assert len(said(machine, "started")) == len(said(machine, "ended")) == 2
    assert_in_time(machine, deadline)
    undisturbed(machine)
