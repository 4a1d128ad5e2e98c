"""The smoke test's beliefs, record and clean-up on moto: tests the program, says nothing of AWS."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from botocore.exceptions import ClientError

from infra.settings import load_settings
from pulumi_on_moto import sandbox
from research.smoke import controlling
from research.smoke.__main__ import BELIEFS, main, try_beliefs
from research.smoke.bed import TAG, Bed, Belief, Falsified, RunRecord
from research.smoke.cleaning import clean_up
from research.smoke.stack import CONFIG, SmokeStack, wait_for_heartbeat
from tests.infra.declared import shipped
from tests.models import create_table

REGION = "us-west-2"
NOT_ON_MOTO = {
    "wrong-images": "a trial of a launch finds no fault",
    "warm-pool-by-image-id": "warm pools are not refused",
    "fleets-from-own-templates": "permissions bind no fleet; played below",
    "shortage-of-a-group": "no market",
    "shortage-of-a-fleet": "no market",
    "targets-of-a-fleet": "fleets launch as a market plays",
    "launch-in-a-zone": "instances launch as a market plays",
    "release-of-an-instance": "instances launch as a market plays",
}


class Clock:
    def __init__(self) -> None:
        self.at = 1_767_571_200.0

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    clock = Clock()
    with sandbox(REGION) as clients:
        yield Bed(clients, "r1", RunRecord(tmp_path / "made.jsonl"), clock.sleep, clock.now)
        clients.refused.clear()  # refusals are what some beliefs look for


PLAYED = [one for one in BELIEFS if one.name not in NOT_ON_MOTO]


@pytest.mark.parametrize("belief", PLAYED, ids=[one.name for one in PLAYED])
def test_a_belief_holds_on_moto_and_leaves_nothing(bed: Bed, belief: Belief) -> None:
    assert belief.trial(bed)
    assert clean_up(bed) == []


def test_there_are_few_and_each_names_code_that_exists() -> None:
    root = Path(__file__).parents[2]
    assert len(BELIEFS) + 1 <= 25
    assert all((root / one.rests).is_file() and one.sentence.endswith(".") for one in BELIEFS)
    assert NOT_ON_MOTO.keys() <= {one.name for one in BELIEFS}


def test_the_stack_file_is_one_instance_on_demand() -> None:
    [service] = load_settings(yaml.safe_load(CONFIG.read_text("utf-8"))["config"]).services
    capacity = service.capacity
    assert (capacity.target, capacity.maximum, capacity.on_demand_base) == (1, 2, 1)
    assert service.image is None


def test_results_are_written_as_they_come_and_a_failure_names_the_code(
    bed: Bed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = RunRecord(tmp_path / "results.jsonl")

    def false(_: Bed) -> str:
        assert [line["verdict"] for line in results.lines()] == ["held"]
        raise Falsified("it is blue")

    def broken(_: Bed) -> str:
        bed.clients("dynamodb").describe_table(TableName="none")
        return ""

    beliefs = [
        Belief("first", "It is.", "infra/a.py", lambda _: "so"),
        Belief("second", "It is red.", "infra/b.py", false),
        Belief("third", "It exists.", "infra/c.py", broken),
    ]
    assert try_beliefs(bed, beliefs, results) == 2
    assert [line["verdict"] for line in results.lines()] == ["held", "falsified", "not tried"]
    assert "infra/b.py rests on: It is red." in capsys.readouterr().out


class Fleets:
    """Answers ``CreateFleet`` by its template, or ``image`` where one overrides it."""

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers = answers

    def create_fleet(self, **asked: Any) -> None:
        assert asked["DryRun"]
        [config] = asked["LaunchTemplateConfigs"]
        template = config["LaunchTemplateSpecification"]["LaunchTemplateName"].rpartition("-")[2]
        key = "image" if "ImageId" in config["Overrides"][0] else template
        if code := self.answers[key]:
            raise ClientError({"Error": {"Code": code}}, "CreateFleet")


ALLOWED, REFUSED = "DryRunOperation", "UnauthorizedOperation"


@pytest.mark.parametrize(
    ("own", "other", "image", "wrong"),
    [
        (ALLOWED, REFUSED, REFUSED, ""),
        (REFUSED, REFUSED, REFUSED, "own template is allowed"),
        (ALLOWED, ALLOWED, REFUSED, "another template is refused"),
        (ALLOWED, REFUSED, ALLOWED, "another image is refused"),
        (ALLOWED, REFUSED, "", "another image is refused"),
    ],
)
def test_a_fleet_is_tried_as_the_controller(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, own: str, other: str, image: str, wrong: str
) -> None:
    roles: list[str] = []

    def client_of_role(_: Bed, arn: str) -> Fleets:
        roles.append(arn.rpartition("/")[2])
        return Fleets({"own": own, "other": other, "image": image})

    monkeypatch.setattr(controlling, "client_of_role", client_of_role)
    if wrong:
        with pytest.raises(Falsified, match=f"^not so: {wrong}$"):
            controlling.fleets_from_own_templates.trial(bed)
    else:
        assert controlling.fleets_from_own_templates.trial(bed)
    tried = bed.clients("iam").get_role_policy(RoleName=roles[0], PolicyName="own")["PolicyDocument"]
    assert clean_up(bed) == []
    # As in the controller's role, but for the condition that is tried.
    of_zones = shipped("research").statements("controller-function")
    held = [of_zones[name] for name in ("LaunchFromOwnTemplates", "MakeFleets")]
    assert kinds_and_conditions(tried["Statement"], "r1") == kinds_and_conditions(held, "research")


def kinds_and_conditions(statements: list[dict[str, Any]], stack: str) -> dict[str, set[str]]:
    """The kind of each resource with the keys and values of its conditions."""
    assert {one for each in statements for one in as_list(each["Action"])} == {"ec2:CreateFleet"}
    return {
        arn.rpartition(":")[2]: {
            f"{key} {value}".replace(stack, "STACK")
            for operator, keys in each["Condition"].items()
            for key, value in keys.items()
            if operator == "StringEquals"
        }
        for each in statements
        for arn in as_list(each["Resource"])
    }


def as_list(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


def test_the_credentials_of_a_role_are_used(bed: Bed) -> None:
    made = controlling.client_of_role(bed, bed.role("assumed", {"AWS": "arn:aws:iam::123456789012:root"}))
    assert made.describe_vpcs()["Vpcs"]
    assert clean_up(bed) == []


def test_what_is_not_of_the_run_is_never_deleted(bed: Bed) -> None:
    """A resource of the recorded name without the tag, one of another run, and one with the tag only."""
    iam = bed.clients("iam")
    names = [bed.name("role", suffix) for suffix in ("bare", "other", "own")]
    for name, run in zip((*names, "unrecorded"), (None, "r2", "r1", "r1"), strict=True):
        tags = [] if run is None else [{"Key": TAG, "Value": run}]
        iam.create_role(RoleName=name, AssumeRolePolicyDocument="{}", Tags=tags)
    reasons = [text.partition(": ")[2] for text in clean_up(bed)]
    assert reasons == ["without the tag of this run, not deleted"] * 2
    assert {role["RoleName"] for role in iam.list_roles()["Roles"]} == {*names[:2], "unrecorded"}


def test_a_resource_that_was_never_made_is_no_leftover(bed: Bed) -> None:
    for kind in ("group", "template", "role", "table"):
        bed.name(kind, "never")
    assert clean_up(bed) == []


def test_a_group_with_instances_and_its_template_go(bed: Bed) -> None:
    group = bed.group("two")
    assert [line["kind"] for line in bed.record.lines()] == ["template", "group"]
    assert bed.described(group)["MaxSize"] == 2
    assert clean_up(bed) == []
    assert bed.clients("ec2").describe_launch_templates()["LaunchTemplates"] == []


def test_the_stack_is_made_and_destroyed_by_its_state(tmp_path: Path) -> None:
    seen: list[tuple[str, dict[str, str]]] = []

    def pulumi(words: Any, environment: Any, project: Path) -> None:
        seen.append((" ".join(words), dict(environment)))
        assert project == tmp_path

    stack = SmokeStack(tmp_path, tmp_path / "run", pulumi)
    stack.destroy()
    assert seen == []  # nothing was made
    stack.up()
    stack.destroy()
    assert [words.split()[0] for words, _ in seen] == ["stack", "up", "destroy"]
    assert all(around["PULUMI_BACKEND_URL"].endswith("/run/state") for _, around in seen)
    assert f"--config-file {CONFIG} --stack smoke" in seen[1][0]


def test_the_first_heartbeat_is_waited_for(bed: Bed) -> None:
    client = bed.clients("dynamodb")
    with pytest.raises(Falsified, match="none, expected is one"):
        wait_for_heartbeat(bed)
    create_table(client, "gpu-spot-smoke-registry-1a2b3c4", "group", "worker")
    with pytest.raises(Falsified, match="the first heartbeat in the worker registry: not within 60 s"):
        wait_for_heartbeat(bed, 60)
    row = {"group": {"S": "smoke@arn"}, "worker": {"S": "i-1/0"}}
    client.put_item(TableName="gpu-spot-smoke-registry-1a2b3c4", Item=row)
    assert wait_for_heartbeat(bed) == "worker i-1/0 reported"


def test_a_run_without_the_stack_and_its_clean_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("research.smoke.__main__.BELIEFS", PLAYED[:1])
    with sandbox(REGION) as clients:
        words = ["--yes-spend-money", "--without-stack", "--out", str(tmp_path)]
        assert main(words, lambda _: clients) == 0
        clients.refused.clear()
    [folder] = tmp_path.iterdir()
    assert [json.loads(line)["verdict"] for line in (folder / "results.jsonl").read_text().splitlines()] == [
        "held"
    ]
    assert "left over: nothing" in capsys.readouterr().out


def test_nothing_starts_without_the_word(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([], lambda _: boto3.client)
    assert "--yes-spend-money" in capsys.readouterr().err
    assert main(["--list"], lambda _: boto3.client) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(BELIEFS)
