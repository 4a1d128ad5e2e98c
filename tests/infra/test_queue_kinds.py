"""A new kind of queue, added to the lists only: the whole program declares it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import pulumi
import pytest

from contracts import broker_users, names
from contracts.agent import config as agent
from contracts.watched_queue import WatchedQueue
from gpu_spot.preflight.checks import secrets as checked
from infra.components.monitoring.alarm_spec import AlarmSpec, Condition, MetricSource
from infra.components.queues import kinds as declared
from infra.components.queues.declared_queue import DeclaredQueue, QueueArgs
from infra.iam.queue_statements import QueueAccess
from infra.iam.statement import Statement
from infra.program import stack as stack_program
from infra.schema import Settings
from infra.schema.services.queues import MODELS
from infra.schema.services.queues.settings import QueueSettings
from lambdas.aws.queues import kinds as watched
from tests.apart import apart
from tests.infra import program
from tests.infra.declared import Run, edited_file, edited_stack, in_service, shipped
from tests.infra.training import EXISTING
from userdata.agent.aws.permissions import Need

URL = "sqs://us-west-2/123456789012"


class Pigeons(QueueSettings):
    title: ClassVar[str] = "pigeons"
    has_secret: ClassVar[bool] = False
    need: ClassVar[Need] = "sqs"
    kind: Literal["pigeons"] = "pigeons"
    existing: None = None
    max_message_age_seconds: int = 120

    def for_workers(self, service: str, attributes: Mapping[str, str]) -> agent.Queue:
        return agent.Queue(attributes["loft"], url=URL)


def _declare(args: QueueArgs[Pigeons]) -> DeclaredQueue:
    fly = Statement("Fly", ["pigeons:Fly"], ["loft"])
    watch = Statement("Watch", ["pigeons:Watch"], ["loft"])
    place = WatchedQueue(args.service, "pigeons", "loft", "roof")
    return DeclaredQueue(
        args.service,
        args.settings,  # type: ignore[arg-type]
        attributes={"loft": "loft-1"},
        watched=pulumi.Output.from_input(place),
        access=QueueAccess("pigeons", work=[fly], watch=[watch]),
        extra_alarms=[
            AlarmSpec("inference-queue-rain", "Rain.", MetricSource("Sky", {}), "Rain", Condition("Maximum"))
        ],
        outputs={"loft": "loft-1"},
    )


def _with_pigeons(stack_file: Path) -> dict[str, Any]:
    """Run the program with the new kind in place of the stack file's queue."""
    read = stack_program.read_settings

    def with_new_kind() -> Settings:
        settings = read()
        services = [one.model_copy(update={"queue": Pigeons()}) for one in settings.services]
        return settings.model_copy(update={"services": tuple(services)})

    stack_program.read_settings = with_new_kind
    declared.KINDS["pigeons"] = _declare  # type: ignore[index]
    return program.declared("known", "dev", stack_file)


@pytest.fixture(scope="module")
def made() -> Run:
    path = edited_file(in_service(command=["serve"], queue=EXISTING))
    return Run("dev", **apart(_with_pigeons, path))


def test_every_package_lists_the_kinds_of_the_schema() -> None:
    kinds = {kind for model in MODELS for kind in get_args(model.model_fields["kind"].annotation)}
    for known in (declared.KINDS, checked.KINDS, watched.KINDS):
        assert known.keys() == kinds


def test_a_new_kind_is_watched(made: Run) -> None:
    variables = made.the("Function", "queues")["environment"]["variables"]
    assert json.loads(variables[names.ENV_QUEUES]) == [["inference", "pigeons", "loft", "roof", "", 0]]
    assert '"Sid": "Watch"' in made.the("RolePolicy", "queues-function")["policy"]


def test_a_new_kinds_workers_have_its_address_and_permissions(made: Run) -> None:
    queue = made.agent("inference-primary")["service"]["queue"]
    assert (queue["name"], queue["url"]) == ("loft-1", URL)
    assert '"Sid": "Fly"' in made.the("RolePolicy", "inference-instance")["policy"]


def test_a_new_kind_has_alarms_and_outputs(made: Run) -> None:
    alarms = {name.removeprefix("inference-queue-") for name in made.alarms()}
    assert alarms >= {"rain", "message-age", "no-consumers", "unreachable"}
    assert made.exports["queues"] == {"inference": {"loft": "loft-1"}}


ACCOUNT = "arn:aws:secretsmanager:us-west-2:123456789012"


def test_each_service_reads_the_url_of_its_own_user_on_the_only_broker() -> None:
    stack = shipped("ocr")
    [broker] = stack.of("Broker")
    variables = stack.the("Function", "broker-users")["environment"]["variables"]
    [managed] = broker_users.parse(variables[names.ENV_BROKERS])
    assert managed.administrator == stack.physical(broker)
    assert {(user.name, user.queue, user.calls) for user in managed.users} == {
        ("ocr.workers", "ocr", ()),
        ("ocr.clients", "ocr", ()),
        ("pages.workers", "pages", ("ocr",)),
        ("pages.clients", "pages", ()),
        ("monitor", "", ()),
    }
    assert len(managed.users) == 5
    for service in ("ocr", "pages"):
        for side in ("primary", "fallback"):
            queue = stack.agent(f"{service}-{side}")["service"]["queue"]
            assert queue == {"secret": f"gpu-spot-ocr-{service}-mq-workers", "name": service}
        policy = stack.policy(f"{service}-instance")
        [granted] = [one for one in policy["Statement"] if "secretsmanager:GetSecretValue" in one["Action"]]
        assert granted["Resource"] == [f"{ACCOUNT}:secret:{queue['secret']}-??????"]


def test_the_order_of_the_entries_does_not_matter() -> None:
    reversed_stack = edited_stack(lambda config: config["gpu-spot:services"].reverse(), "ocr")
    declared = {one["name"] for one in reversed_stack.declared}
    assert declared == {one["name"] for one in shipped("ocr").declared}
