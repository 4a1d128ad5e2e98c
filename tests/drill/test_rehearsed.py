"""``gpu-spot drill`` in a rehearsal, and the resources that the program declares for it."""

from __future__ import annotations

import argparse
import io
import json
import os
import pty
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from gpu_spot import cli
from gpu_spot.commands.deployed import drill
from gpu_spot.drill.experiment import DrillError
from infra.components.control.drills import ACTION
from pulumi_on_moto.sandbox import ACCOUNT
from rehearsal.commands.drill import overrides
from rehearsal.drilling import rehearse_drill
from tests.apart import apart
from tests.e2e.world import living, load, small
from tests.iam import Request, allowed_actions, allows

INSTANCE = f"arn:aws:ec2:us-west-2:{ACCOUNT}:instance/i-1"
OTHER_GROUP = {"aws:ResourceTag/gpu-spot:stack": ["dev"], "aws:ResourceTag/gpu-spot:group": ["other"]}
OUR_GROUP = {"aws:ResourceTag/gpu-spot:stack": ["dev"], "aws:ResourceTag/gpu-spot:group": ["inference"]}


def parsed(*words: str) -> argparse.Namespace:
    return cli.parser("drill").parse_args(["drill", "--group", "inference", *words])


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return apart(_collect)


def test_one_instance_is_lost_noticed_and_replaced(results: dict[str, Any]) -> None:
    report = json.loads(results["report"])
    [loss] = report["lost"]
    assert results["code"] == 0
    assert (report["rehearsed"], report["target"], report["group"]) == (True, 4, "inference")
    # The rehearsal's step is a minute: the notice is received at the first, two minutes before the end.
    assert (loss["noticed_after"], loss["gone_after"]) == (60.0, 180.0)
    assert report["made_good_after"] >= loss["gone_after"]
    assert report["served"] >= 0.9


def test_the_template_takes_spot_instances_of_this_group_alone(results: dict[str, Any]) -> None:
    template = results["template"]
    [target], [action], [stop] = (
        template["targets"].values(),
        template["actions"].values(),
        template["stopConditions"],
    )
    assert target["resourceType"] == "aws:ec2:spot-instance"
    assert target["selectionMode"] == "COUNT(1)"
    assert target["resourceTags"] == {"gpu-spot:stack": "dev", "gpu-spot:group": "inference"}
    assert (action["actionId"], action["parameters"]) == (ACTION, {"durationBeforeInterruption": "PT2M"})
    assert "inference-shortage" in stop["value"]


def test_the_role_may_interrupt_instances_of_this_group_alone(results: dict[str, Any]) -> None:
    documents = [results["policy"]]
    interrupt = "ec2:SendSpotInstanceInterruptions"
    assert allowed_actions(documents) == {"ec2:DescribeInstances", interrupt}
    assert allows(documents, Request(interrupt, INSTANCE, OUR_GROUP))
    assert not allows(documents, Request(interrupt, INSTANCE, OTHER_GROUP))
    assert not allows(documents, Request(interrupt, INSTANCE))
    [trust] = results["trust"]["Statement"]
    assert trust["Principal"] == {"Service": "fis.amazonaws.com"}
    assert trust["Condition"]["StringEquals"] == {"aws:SourceAccount": ACCOUNT}


def test_an_incomplete_group_is_not_drilled(results: dict[str, Any]) -> None:
    assert "misses 4 of 4" in results["empty"]


def test_a_terminal_asks_for_confirmation_and_a_pipe_requires_yes() -> None:
    config = load("dev")
    with mock.patch("sys.stdin", io.StringIO("y\n")), pytest.raises(DrillError, match="use --yes"):
        drill._confirm(parsed(), config)
    assert refusal_on_terminal("y\n", config) == ""
    assert refusal_on_terminal("\n", config) == "drill cancelled: nothing was started"
    drill._confirm(parsed("--yes"), config)


@pytest.mark.soak
def test_a_training_job_resumes_from_its_checkpoint_and_the_report_has_its_loss() -> None:
    report = apart(_drill_a_job)
    [loss], [job] = report["lost"], report["jobs"]
    assert (job["job"], job["lost_seconds"], job["lost_steps"]) == ("resnet", 0.0, 0)
    # An hour of steps of half a minute, less boot and volume; it goes on from the last of them.
    assert 90 <= job["step_before"] <= 120
    assert job["step_before"] <= job["step_after"] <= job["step_before"] + 5
    # It trains on for a while after the notice, and is back when its successor has the volume.
    assert loss["noticed_after"] < job["went_on_after"] <= report["made_good_after"]
    assert 60 <= job["away_seconds"] < job["went_on_after"] - loss["noticed_after"]


def test_a_simulated_job_needs_neither_the_container_nor_the_python_of_the_real_one() -> None:
    args = cli.parser("drill").parse_args(["drill", "--rehearse", "--group", "circles"])
    expected = {"training[0].capacity.drill": 1}  # Python environments are not simulated
    assert overrides(args.group, load("keras")) == expected


def test_an_experiment_is_drilled_by_its_own_name_and_declared_at_its_entry() -> None:
    args = cli.parser("drill").parse_args(["drill", "--rehearse", "--group", "resnet-2-65baec"])
    config = load("research", {"training[0].matrix": {"SEED": ["1", "2"]}})
    assert overrides(args.group, config) == {"training[0].capacity.drill": 1}


def test_a_group_that_the_stack_does_not_have_is_refused() -> None:
    args = cli.parser("drill").parse_args(["drill", "--rehearse", "--group", "nobody"])
    with pytest.raises(DrillError, match=r"--group is 'nobody', allowed .* \(inference\)"):
        drill.rehearsed(args, load("dev"))


def refusal_on_terminal(reply: str, config: Any) -> str:
    """Reply on a terminal; return the error, if any."""
    master, slave = pty.openpty()
    os.write(master, reply.encode())
    with os.fdopen(slave, "r") as terminal, mock.patch("sys.stdin", terminal):
        try:
            drill._confirm(parsed(), config)
        except DrillError as error:
            return str(error)
        finally:
            os.close(master)
    return ""


def _drill_a_job() -> dict[str, Any]:
    words = ["drill", "--stack", "research", "--group", "resnet", "--rehearse", "--json"]
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()) as output:
        assert drill.run(cli.parser("drill").parse_args([*words, "--out", folder])) == 0
    report: dict[str, Any] = json.loads(output.getvalue())
    return report


def _collect() -> dict[str, Any]:
    results: dict[str, Any] = {}
    config = load("dev", small(4) | {"services[0].capacity.drill": 1})
    with tempfile.TemporaryDirectory() as folder, living(config) as world:
        args = parsed("--rehearse", "--json", "--out", folder)
        planned_drill = drill.create_drill(args, world.clients, config, lambda: world.clock.now)
        try:
            planned_drill.plan()
        except DrillError as error:
            results["empty"] = str(error)
        with redirect_stdout(io.StringIO()) as output:
            results["code"] = drill.report(args, rehearse_drill(world.cloud, "inference", planned_drill))
        results["report"] = output.getvalue()
        assert results["report"] == (Path(folder) / "dev-inference.json").read_text("utf-8")
        fis, iam = world.clients("fis"), world.clients("iam")
        [template] = fis.list_experiment_templates()["experimentTemplates"]
        results["template"] = fis.get_experiment_template(id=template["id"])["experimentTemplate"]
        results["template"] = json.loads(json.dumps(results["template"], default=str))
        role = results["template"]["roleArn"].rpartition("/")[2]
        [policy] = iam.list_role_policies(RoleName=role)["PolicyNames"]
        results["policy"] = iam.get_role_policy(RoleName=role, PolicyName=policy)["PolicyDocument"]
        results["trust"] = iam.get_role(RoleName=role)["Role"]["AssumeRolePolicyDocument"]
    return results
