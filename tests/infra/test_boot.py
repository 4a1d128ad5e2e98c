"""Boot data: small, valid, and a script that boots a machine or says why not and has it replaced."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from contracts import codec
from contracts.agent import config, names
from contracts.names import INSTANCE_NAMESPACE
from contracts.stored import ContractError
from infra.archives import agent as agent_archive
from tests.infra import training
from tests.infra.booting import BOOTED, Machine
from tests.infra.declared import STACKS, shipped
from tests.node import configs
from tests.node.metadata import MetadataServer
from tests.waiting import run_process
from userdata.agent.work.process import GIVE_BACK_SECONDS, STOP_SECONDS
from userdata.render import LIMIT_BYTES, SCRIPT, BootSettings, render, units

ARCHIVE = agent_archive.build()
HOOKS = {"launch": "instance-prepared", "terminate": "work-ended"}


def settings(body: dict[str, Any] | None = None) -> BootSettings:
    agent = configs.load(body or configs.service(side="fallback", hooks=HOOKS))
    return BootSettings(agent, "bucket", ARCHIVE.key, ARCHIVE.sha256, "/gpu-spot/dev/cloudwatch-agent/resnet")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    server = MetadataServer()
    made = Machine(tmp_path, server)
    made.store("bucket", ARCHIVE.key, ARCHIVE.path.read_bytes())
    yield made
    server.close()


def everything() -> Iterator[str]:
    for stack in STACKS:
        for name in shipped(stack).of("LaunchTemplate"):
            yield shipped(stack).cloud_config(name)
    largest = training.stack("prod", checkpoints="checkpoints")
    yield largest.cloud_config("resnet-fallback")


def test_cloud_init_accepts_all_of_it_and_it_is_far_below_the_limit(
    tmp_path: Path, require_program: Callable[..., str]
) -> None:
    program = require_program("cloud-init")
    paths = []
    for number, text in enumerate(everything()):
        assert len(text.encode()) < LIMIT_BYTES * 0.6
        # Cloud-init ignores keys that it does not know, so its own check would let a misspelt one pass.
        assert set(yaml.safe_load(text)) == {"write_files"}
        paths.append(tmp_path / f"user-data-{number}")
        paths[-1].write_text(text, "utf-8")
    for path in paths[:1] + paths[-1:]:
        done = run_process([program, "schema", "-c", path])
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_most_that_a_stack_file_can_say_stays_below_the_limit() -> None:
    """Every bound of the settings at once; encoded twice, a quote takes four bytes."""
    datasets = [
        {"snapshot": f"snap-{number:017x}", "path": f"/dltraining/datasets/{'x' * 106}{number}"}
        for number in range(len(names.DATASET_DEVICES))
    ]
    name = "a" * 24
    largest = training.stack(
        "prod",
        name=name,
        checkpoints="checkpoints",
        repository=f"https://example.com/{'r' * 492}",
        dataset=None,
        datasets=datasets,
        command=["python", *['"' * 15] * 55],
        environment={f"NAME_{number}": "v" * 20 for number in range(5)},
    )
    text = largest.cloud_config(f"{name}-fallback")
    assert LIMIT_BYTES * 0.7 < len(text.encode()) <= LIMIT_BYTES


def test_bash_and_shellcheck_accept_the_script(require_program: Callable[..., str]) -> None:
    for command in (["bash", "-n"], [require_program("shellcheck")]):
        done = run_process([*command, SCRIPT])
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_name_in_the_script_is_set_by_the_boot_data() -> None:
    [environment] = [
        file["content"]
        for file in yaml.safe_load(render(settings()))["write_files"]
        if file["path"].endswith("boot.env")
    ]
    given = set(re.findall(r"^([A-Z0-9_]+)=", environment, re.M))
    named = set(re.findall(r"\$\{?([A-Z][A-Z0-9_]+)", SCRIPT.read_text("utf-8")))
    assert named - {"GPU_SPOT_ROOT", "GPU_SPOT_METADATA", "NO_PROXY"} == given


@pytest.mark.parametrize("value", ['a"b', "x\ny", "$(reboot)", "ä", "`id`"])
def test_a_value_that_the_shell_could_misread_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r"boot setting AGENT_BUCKET must be letters, digits"):
        render(replace(settings(), bucket=value))


def test_a_configuration_that_the_agent_would_refuse_is_refused_here() -> None:
    late = replace(settings().agent, drain_seconds=111)
    with pytest.raises(ContractError, match="drainSeconds must be from 0 to 110, not 111"):
        render(replace(settings(), agent=late))


def test_boot_data_over_the_limit_is_refused() -> None:
    big = configs.service(service={"command": ["x" * 17_000]})
    with pytest.raises(
        ValueError,
        match=r"user data must be at most 16384 bytes, not \d+; shorten the command or the environment",
    ):
        render(settings(big))


def test_units_follow_the_work() -> None:
    def of(body: dict[str, Any]) -> set[str]:
        wanted = units(codec.parse(config.Config, body))
        return {unit.removeprefix("gpu-spot-").removesuffix(".service") for unit in wanted}

    assert of(configs.service(hooks=None)) == {"watch", "work", "metrics"}
    assert of(configs.service(hooks=HOOKS)) == {"watch", "prepare", "work", "metrics"}
    assert of(configs.training()) == {"watch", "volume", "run", "metrics"}
    mount = {"fileSystem": "fs-1", "accessPoint": "fsap-1", "path": "/a"}
    assert of(configs.training(efs=[mount])) == {"watch", "volume", "efs", "run", "metrics"}


def test_booting_again_changes_nothing(machine: Machine) -> None:
    machine.write_files(render(settings()))
    assert machine.boot().returncode == 0
    marker = machine.root / "opt/gpu-spot" / ARCHIVE.sha256 / "marker"
    marker.touch()
    (machine.root / BOOTED).unlink()  # as after a loss of power
    assert machine.boot().returncode == 0
    assert marker.exists()
    calls = machine.calls("aws")
    assert (machine.boot().returncode, machine.calls("aws")) == (0, calls)
    (machine.root / BOOTED).rename((machine.root / BOOTED).with_name("user-data.txt"))  # of no stack
    assert (machine.boot().returncode, machine.calls("aws")) == (0, calls)
    assert (machine.root / "opt/gpu-spot/agent").readlink() == Path(ARCHIVE.sha256)


def test_without_a_cloudwatch_agent_the_work_starts_all_the_same(machine: Machine) -> None:
    machine.write_files(render(settings()))
    (machine.root / "opt/aws/amazon-cloudwatch-agent/bin/amazon-cloudwatch-agent-ctl").unlink()
    done = machine.boot()
    assert done.returncode == 0
    assert "no CloudWatch agent: metrics and logs stay here" in done.stdout
    assert machine.calls("systemctl")[-1][0] == "start"
    assert machine.calls("sleep") == []


def test_a_boot_without_credentials_ends_and_says_so_where_none_are_needed(machine: Machine) -> None:
    machine.write_files(render(settings()))
    machine.fail_first("aws", 1000)
    done = machine.boot()
    assert done.returncode != 0
    assert "FAILED with status 1: fetch s3://bucket/agent/" in done.stdout
    waited = sum(int(seconds) for [seconds] in machine.calls("sleep"))
    assert 500 < waited < 660  # a minute of it for the hook
    assert machine.calls("shutdown") == [["--poweroff", "+5"]]


def test_what_the_script_prints_is_in_the_console_output(require_program: Callable[..., str]) -> None:
    """EC2 keeps the console: where a machine has no credentials it is all that is left of its boot."""
    require_program("cloud-init")
    unit = Path("/lib/systemd/system/cloud-final.service").read_text("utf-8")
    assert "StandardOutput=journal+console" in unit.splitlines()


def failed(machine: Machine, step: str, **proxies: str) -> None:
    done = machine.boot(is_late=True, **proxies)
    assert done.returncode != 0
    assert f"gpu-spot boot: FAILED with status {done.returncode}: {step}" in done.stdout
    assert not (machine.root / "opt/gpu-spot/agent").exists()
    assert not [call for call in machine.calls("systemctl") if call[0] in ("enable", "start")]
    reported = [call for call in machine.calls("aws") if call[0] == "cloudwatch"]
    assert [(call[3], call[5], call[-1]) for call in reported] == [
        (INSTANCE_NAMESPACE, "BootFailures", "stack=dev,group=resnet")
    ]


ABANDONED = [
    *("autoscaling", "complete-lifecycle-action"),
    *("--auto-scaling-group-name", "gpu-spot-dev-inference-fallback-1"),
    *("--lifecycle-hook-name", "instance-prepared", "--instance-id", "i-0abc"),
    *("--lifecycle-action-result", "ABANDON"),
]


@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
def test_an_archive_that_is_not_there_is_reported_behind_a_proxy_too(machine: Machine, name: str) -> None:
    (machine.doubles / "s3/bucket" / ARCHIVE.key).unlink()
    machine.write_files(render(settings()))
    # The double of the metadata service is reached only if the image's own list is in force, too.
    proxies = {"http_proxy": "http://127.0.0.1:9", name: "127.0.0.1,intern.example"}
    failed(machine, f"fetch s3://bucket/{ARCHIVE.key}", **proxies)
    assert machine.calls("aws")[-1] == ABANDONED
    assert (machine.doubles / "no-proxy").read_text() == "127.0.0.1,intern.example,169.254.169.254"


def test_an_image_that_cannot_mount_the_file_system_is_reported_and_the_launch_abandoned(
    machine: Machine,
) -> None:
    mounts = [{"fileSystem": "fs-0a", "accessPoint": "fsap-0a", "path": "/dltraining/checkpoints/resnet"}]
    machine.write_files(render(settings(configs.training(hooks=HOOKS, efs=mounts))))
    done = machine.boot()
    assert "FAILED with status 1: find mount.efs: the image lacks amazon-efs-utils" in done.stdout
    assert machine.calls("aws")[-1] == ABANDONED
    assert not [call for call in machine.calls("systemctl") if call[0] in ("enable", "start")]
    helper = machine.root / "sbin" / "mount.efs"
    helper.parent.mkdir()
    helper.touch(mode=0o755)
    machine.store("bucket", ARCHIVE.key, ARCHIVE.path.read_bytes())
    assert machine.boot().returncode == 0


def old_python(path: Path, version: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "Python {version}" || exit 1\n')
    path.chmod(0o755)


def test_the_units_run_the_first_python_that_is_new_enough(machine: Machine) -> None:
    machine.write_files(render(settings()))
    old_python(machine.root / "usr/bin/python3", "3.9.16")
    newer = machine.root / "usr/bin/python3.12"
    newer.symlink_to(os.path.realpath(sys.executable))
    assert machine.boot().returncode == 0
    chosen = machine.root / "opt/gpu-spot/python"
    assert chosen.readlink() == newer
    # As the units call it: a link to a link finds its own standard library.
    command = [chosen, "-S", "-c", "import json, sys; print(sys.version_info >= (3, 11))"]
    assert run_process(command, check=True).stdout == "True\n"


@pytest.mark.parametrize("versions", [[], ["3.9.16"], ["3.10.12", "3.9.16"]])
def test_an_image_with_an_old_python_fails_the_boot_with_its_path(
    versions: list[str], machine: Machine
) -> None:
    machine.write_files(render(settings()))
    (machine.root / "usr/bin/python3").unlink()
    places = [machine.root / "usr/bin/python3", machine.root / "usr/local/bin/python3"]
    for path, version in zip(places, versions, strict=False):
        old_python(path, version)
    found = ", ".join(f"Python {version} as {path}" for path, version in zip(places, versions, strict=False))
    failed(machine, f"find Python 3.11 or newer: found {found}")
    assert machine.calls("aws")[-1] == ABANDONED


def test_an_image_that_cannot_keep_a_job_from_the_metadata_fails_the_boot(machine: Machine) -> None:
    (machine.root / "usr/sbin/nft").unlink()
    machine.write_files(render(settings()))
    assert machine.boot().returncode == 0  # a service is its owner's
    machine.write_files(render(settings(configs.training(hooks=HOOKS))))
    machine.store("bucket", ARCHIVE.key, ARCHIVE.path.read_bytes())
    done = machine.boot()
    assert "FAILED with status 1: find nft or iptables" in done.stdout
    (machine.root / "usr/sbin/iptables").touch(mode=0o755)
    assert machine.boot().returncode == 0


@pytest.mark.parametrize("unit", [names.UNIT_RUN, names.UNIT_WORK])
def test_work_gets_files_and_pinned_memory_and_may_lose_a_child_to_the_kernel(unit: str) -> None:
    lines = (SCRIPT.parent / "agent/units" / unit).read_text("utf-8").splitlines()
    wanted = {
        *("LimitNOFILE=1048576", "LimitMEMLOCK=infinity", "LimitCORE=0", "TasksMax=infinity"),
        # The default, stop, ends the unit when the kernel kills one data loader for its memory.
        *("OOMPolicy=continue", "OOMScoreAdjust=-500"),
        # Workers that drain outlive an agent that is killed.
        "KillMode=process" if unit == names.UNIT_WORK else "KillMode=mixed",
    }
    assert wanted <= set(lines)
    assert "Requires=" not in "".join(line for line in lines if not line.startswith("#"))
    stop = next(line for line in lines if line.startswith("TimeoutStopSec="))
    assert float(stop.partition("=")[2]) == STOP_SECONDS + GIVE_BACK_SECONDS


def test_without_a_launch_hook_the_power_goes_off(machine: Machine) -> None:
    (machine.doubles / "s3/bucket" / ARCHIVE.key).unlink()
    machine.write_files(render(settings(configs.service(hooks={"terminate": "work-ended"}))))
    failed(machine, "fetch")
    assert not [call for call in machine.calls("aws") if call[0] == "autoscaling"]
    assert machine.calls("shutdown") == [["--poweroff", "+5"]]


def test_a_hook_that_never_begins_is_asked_for_a_minute_and_then_the_power_goes_off(machine: Machine) -> None:
    (machine.doubles / "no-hook").touch()
    (machine.doubles / "s3/bucket" / ARCHIVE.key).unlink()
    machine.write_files(render(settings()))
    failed(machine, "fetch")
    assert machine.calls("aws").count(ABANDONED) == 6
    assert machine.calls("sleep")[-6:] == [["10"]] * 6
    assert machine.calls("shutdown") == [["--poweroff", "+5"]]


def test_a_preview_shows_which_part_of_the_boot_data_is_another_and_not_its_base64() -> None:
    def described(folder: str, **changes: Any) -> dict[str, str]:
        of = training.stack(**changes)
        template = of.the("LaunchTemplate", "resnet-primary")
        sentence, _, marks = template["description"].partition(" Boot data: ")
        assert sentence == "primary instances of resnet."
        assert len(template["description"]) <= 255  # EC2's API, VersionDescription
        [declared] = [one for one in of.declared if one["inputs"] == template]
        assert declared["hide_diffs"] == ["userData"]
        return dict(mark.split(" ") for mark in marks.split(", "))

    before, after = described("before"), described("after", command=["python3", "other.py"])
    assert {part for part in before if before[part] != after[part]} == {"training"}
    assert before.keys() == after.keys() > {"agent", "boot.sh", "hooks", "volume", "metrics"}
