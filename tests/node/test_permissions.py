"""The agent's recorded calls against the IAM roles of deployed stacks: all allowed, nothing more."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any, Final

import pytest

from pulumi_on_moto.emulator import ACCOUNT
from tests.apart import apart
from tests.iam import Request, allows
from tests.infra import training
from tests.node.live import Role, roles
from userdata.agent import cli
from userdata.agent.aws import permissions

CAPACITY: Final = {"kind": "mixed-asg", "target": 1, "max": 2, "instanceTypes": ["g5.xlarge"]}
HOST: Final = {**CAPACITY, "instanceTypes": ["g5.12xlarge"], "fallback": {"warmInstances": 0}}
HOSTS: Final = ("gpu-07", "gpu-08")
WORKERS_TWO: Final = {"inference", *(f"inference@on-premises#{host}" for host in HOSTS)}
DATASETS_TWO: Final = {"vit", "atlas-data"}
ATLAS: Final = {"name": "atlas", "version": "1", "command": ["true"], "instanceType": "m7i.large"}
STACKS: Final[dict[str, tuple[dict[str, Any], dict[str, str]]]] = {
    "dev": (
        {
            "services": [
                {
                    **{"name": "inference", "image": training.IMAGE, "capacity": CAPACITY},
                    "queue": {"kind": "rabbitmq", "existing": {"secret": "queues/ocr"}},
                    "onPremises": {
                        "hosts": [
                            {"name": host, "gpus": 1, "principals": [f"arn:aws:iam::{ACCOUNT}:role/{host}"]}
                            for host in HOSTS
                        ]
                    },
                },
                {
                    "name": "plain",
                    "capacity": CAPACITY,
                    "datasets": [{"snapshot": "snap-0123456789abcdef0", "path": "/data/coco"}],
                },
            ],
            "training": [
                training.job(capacity=CAPACITY),
                training.job(
                    capacity=CAPACITY,
                    name="bert",
                    dataset="s3://datasets/books/",
                    repositorySecret="code/books",
                    artifacts="s3://datasets/out/",
                ),
            ],
        },
        {"imagenet/a": "1", "imagenet/b": "22", "books/c": "3"},
    ),
    "prod": (
        {
            "services": [{"name": "inference", "capacity": CAPACITY}],
            "training": [
                training.job(capacity=CAPACITY, dataset=None, checkpoints="checkpoints"),
                training.job(capacity=CAPACITY, name="vit", dataset="s3://datasets/atlas/", prepare=ATLAS),
            ],
            "sharedHosts": [
                {
                    **{"name": "shared", "capacity": HOST},
                    "tenants": [
                        {
                            **{"name": "ada", "uid": 2001, "cpus": 1, "memoryGiB": 1, "secret": "lab/ada"},
                            "image": training.IMAGE,
                        }
                    ],
                }
            ],
        },
        {"atlas/a": "1"},
    ),
}

NOT_ITS_OWN_CALLS: Final = {
    "SessionManager": "the SSM agent, for people who look into an instance",
    "ForgetParts": "the transfer library, for an upload in parts that breaks off",
    "SendLogs": "the CloudWatch agent: logs, and metrics in the embedded format",
    "PullImages": "docker, with the token that the agent gave it",
    "ListBuckets": "the users' code: the stack's buckets are theirs",
    "ReadBuckets": "the users' code: the stack's buckets are theirs",
}

ANYBODYS: Final = {
    "cloudwatch:PutMetricData",  # bound to the namespace
    "ec2:DescribeInstances",  # of proxies
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeSnapshots",
    "ec2:DescribeSpotPriceHistory",
    "ec2:DescribeVolumes",
    "ecr:GetAuthorizationToken",
}


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, str], Role]:
    return {
        (stack, group): role
        for stack, (overrides, objects) in STACKS.items()
        for group, role in apart(roles, stack, overrides, objects).items()
    }


@dataclass(frozen=True)
class Grant:
    """One action on one resource, as one statement of a role grants it."""

    sid: str
    action: str
    resource: str
    statement: dict[str, Any]

    def holds(self, request: Request) -> bool:
        narrowed = {**self.statement, "Action": self.action, "Resource": self.resource}
        return allows([{"Statement": [narrowed]}], request)


def grants(role: Role) -> Iterator[Grant]:
    for document in role.policies:
        for statement in document["Statement"]:
            for action in statement["Action"]:
                for resource in statement["Resource"]:
                    yield Grant(statement["Sid"], action, resource, statement)


def test_every_call_is_allowed(found: dict[tuple[str, str], Role]) -> None:
    for place, role in found.items():
        assert role.asked, place
        refused = [request for request in role.asked if not allows(role.policies, request)]
        assert refused == [], place


def test_every_grant_is_needed_by_a_call_or_a_named_caller(found: dict[tuple[str, str], Role]) -> None:
    named = set()
    for place, role in found.items():
        every = list(grants(role))
        # Needed: without this one grant, some call would be refused.
        of_request = [[grant for grant in every if grant.holds(request)] for request in role.asked]
        needed = [holding[0] for holding in of_request if len(holding) == 1]
        idle = [grant for grant in every if grant not in needed]
        assert {grant.sid for grant in idle} <= NOT_ITS_OWN_CALLS.keys(), (place, idle)
        named |= {grant.sid for grant in idle}
    assert named == NOT_ITS_OWN_CALLS.keys()


def test_what_another_group_or_stack_asks_is_refused(found: dict[tuple[str, str], Role]) -> None:
    refused = set()
    for (place, role), (other_place, other) in permutations(found.items(), 2):
        for request in other.asked:
            is_archive = request.action == "s3:GetObject" and request.resource.endswith(".zip")
            if request.action in ANYBODYS or (is_archive and place[0] == other_place[0]):
                continue
            if {
                place[1],
                other_place[1],
            } <= WORKERS_TWO and request.action == "secretsmanager:GetSecretValue":
                continue  # one queue, wherever its workers are
            # Which snapshot counts stands in the item of who makes it, and it is both's.
            is_lookup = request.context.get("dynamodb:LeadingKeys") == ["atlas-data"]
            is_copy = request.context.get("aws:ResourceTag/gpu-spot:dataset") == ["atlas@1"]
            shared = ("dynamodb:GetItem", "ec2:CreateVolume")
            if {place[1], other_place[1]} == DATASETS_TWO and request.action in shared:
                assert is_lookup or is_copy or not allows(role.policies, request), request
                continue
            # What it makes has no owner yet but for the tags that it asks for.
            assert not allows(role.policies, request), f"{place} may do what {other_place} does: {request}"
            refused.add(request.action)
    actions = {request.action for role in found.values() for request in role.asked}
    assert refused == actions - ANYBODYS


def test_what_is_another_accounts_is_refused(found: dict[tuple[str, str], Role]) -> None:
    for role in found.values():
        for request in role.asked:
            if ACCOUNT in request.resource:
                foreign = request.resource.replace(ACCOUNT, "210987654321")
                assert not allows(role.policies, replace(request, resource=foreign)), request


def changed(role: Role, action: str, **context: list[str] | None) -> list[Request]:
    """The role's own requests of an action, with condition keys changed or, with None, left out."""
    own = [request for request in role.asked if request.action == action]
    assert own
    names = {
        key.replace("__", ":").replace("_tag_", "Tag/gpu-spot:"): values for key, values in context.items()
    }
    made = []
    for request in own:
        merged = {**request.context, **names}
        made.append(replace(request, context={k: v for k, v in merged.items() if v is not None}))
    return made


def test_nothing_can_be_smuggled_in_by_tags_keys_or_prefixes(found: dict[tuple[str, str], Role]) -> None:
    role = found["dev", "resnet"]
    tried = [
        # To take a volume over, or to give one away, is to change its owner's tag.
        *changed(role, "ec2:CreateTags", **{"aws:TagKeys": ["gpu-spot:job"], "ec2:CreateAction": None}),
        *changed(
            role,
            "ec2:CreateTags",
            **{"ec2:CreateAction": ["RunInstances"], "aws:ResourceTag/gpu-spot:job": None},
        ),
        *changed(role, "dynamodb:UpdateItem", **{"dynamodb:LeadingKeys": None}),
        *changed(role, "dynamodb:UpdateItem", **{"dynamodb:LeadingKeys": ["resnet", "bert"]}),
        *changed(role, "s3:ListBucket", **{"s3:prefix": [""]}),
        *changed(role, "s3:ListBucket", **{"s3:prefix": None}),
        *changed(role, "cloudwatch:PutMetricData", **{"cloudwatch:namespace": ["AWS/EC2"]}),
        Request(
            "ssm:PutParameter", f"arn:aws:ssm:us-west-2:{ACCOUNT}:parameter/gpu-spot/dev/groups/resnet/config"
        ),
        Request("dynamodb:Scan", f"arn:aws:dynamodb:us-west-2:{ACCOUNT}:table/*"),
    ]
    assert [request for request in tried if allows(role.policies, request)] == []


def test_an_on_premises_host_may_only_report(found: dict[tuple[str, str], Role]) -> None:
    role = found["dev", "inference@on-premises#gpu-07"]
    assert {request.action for request in role.asked} == {
        *("dynamodb:UpdateItem", "dynamodb:DeleteItem", "secretsmanager:GetSecretValue"),
        "ecr:GetAuthorizationToken",
    }
    row = next(request for request in role.asked if request.action == "dynamodb:UpdateItem")
    own = row.context["dynamodb:LeadingKeys"]
    assert own == ["inference@on-premises#gpu-07"]
    tried = [
        *(
            changed(role, "dynamodb:UpdateItem", **{"dynamodb:LeadingKeys": [key]})[0]
            for key in ("inference", "inference@on-premises", "inference@on-premises#gpu-08")
        ),
        *changed(role, "dynamodb:UpdateItem", **{"dynamodb:LeadingKeys": [*own, "inference"]}),
        *changed(role, "dynamodb:UpdateItem", **{"dynamodb:LeadingKeys": ["inference@queue"]}),
        *changed(role, "dynamodb:DeleteItem", **{"dynamodb:LeadingKeys": ["inference"]}),
        *changed(role, "dynamodb:UpdateItem", **{"dynamodb:LeadingKeys": None}),
        *(replace(row, action=f"dynamodb:{name}") for name in ("GetItem", "PutItem", "Query", "Scan")),
        *(Request(action) for action in ("sns:Publish", "cloudwatch:PutMetricData", "ec2:DescribeVolumes")),
        Request("s3:GetObject", "arn:aws:s3:::gpu-spot-dev-agent/agent/a.zip"),
        Request("sts:AssumeRole", f"arn:aws:iam::{ACCOUNT}:role/gpu-spot-dev-inference-instance"),
    ]
    assert [request for request in tried if allows(role.policies, request)] == []


@pytest.mark.parametrize("place", [("dev", "inference"), ("dev", "resnet"), ("prod", "shared")])
def test_an_instance_may_write_only_its_own_items(
    found: dict[tuple[str, str], Role], place: tuple[str, str]
) -> None:
    role, key = found[place], "dynamodb:LeadingKeys"
    table = next(r.resource for r in role.asked if r.context.get(key, [""])[0].startswith(f"{place[1]}#"))
    own = [r for r in role.asked if r.resource == table and r.action != "dynamodb:GetItem"]
    sources = {r.context["ec2:SourceInstanceARN"][0] for r in own}
    assert {r.context[key][0] for r in own} == {f"{place[1]}#{source}" for source in sources}
    assert sources
    neighbours = f"arn:aws:ec2:us-west-2:{ACCOUNT}:instance/i-00000000000000000"
    for request in own:
        [source] = request.context["ec2:SourceInstanceARN"]
        lies = [
            # A neighbour's items, beside its own, too; by credentials of no instance.
            {**request.context, key: [f"{place[1]}#{neighbours}"]},
            {**request.context, key: [*request.context[key], f"{place[1]}#{neighbours}"]},
            {**request.context, key: [f"other#{source}"]},
            {**request.context, "ec2:SourceInstanceARN": [neighbours]},
            {name: values for name, values in request.context.items() if name != "ec2:SourceInstanceARN"},
        ]
        assert [lie for lie in lies if allows(role.policies, replace(request, context=lie))] == []


def test_every_subcommand_was_played(found: dict[tuple[str, str], Role]) -> None:
    [commands] = [a for a in cli.parser()._actions if isinstance(a, argparse._SubParsersAction)]
    played = {command for role in found.values() for command in role.commands}
    # `proxy` runs on proxies; tests/infra/test_http.py has their role.
    assert played == commands.choices.keys() - {"proxy"}


def test_every_client_is_recorded() -> None:
    agent = Path(cli.__file__).parent
    makers = {path.name for path in agent.rglob("*.py") if "create_client(" in path.read_text()}
    makers |= {
        path.name for path in agent.rglob("*.py") if "boto3" in path.read_text().replace("mypy_boto3", "")
    }
    assert makers == {"clients.py"}


def test_only_what_aws_cannot_narrow_is_granted_on_everything() -> None:
    wide = {a for s in permissions.STATEMENTS for a in s.actions if s.resources == ("*",)}
    assert wide == ANYBODYS - {"cloudwatch:PutMetricData"}
    for statement in permissions.STATEMENTS:
        assert not any("*" in action for action in statement.actions)
        if any(r.endswith(("volume/*", "snapshot/*", "instance/*")) for r in statement.resources):
            assert statement.conditions, f"{statement.actions} on any volume needs a condition on tags"
