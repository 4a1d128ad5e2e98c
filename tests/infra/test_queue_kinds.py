"""A kind of queue that nobody has heard of, in the lists alone: the whole program declares it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import pulumi
import pytest

from contracts import names
from contracts.agent import config as agent
from contracts.watched_queue import WatchedQueue
from gpu_spot.preflight.checks import queues as checked
from infra.components.monitoring.alarm_spec import AlarmSpec
from infra.components.queues import kinds as declared
from infra.components.queues.declared_queue import DeclaredQueue, QueueArgs
from infra.iam.queue_statements import QueueAccess
from infra.iam.statement import Statement
from infra.kubernetes import triggers
from infra.program import stack as stack_program
from infra.schema import Settings
from infra.schema.services.queues.kinds import MODELS
from infra.schema.services.queues.settings import QueueSettings
from lambdas.aws.queues import kinds as watched
from tests.apart import apart
from tests.infra import program
from tests.infra.declared import Run
from tests.infra.queues import EXISTING, ROOT, variant
from userdata.agent.aws.permissions import Need

URL = "sqs://us-west-2/123456789012"


class Pigeons(QueueSettings):
    title: ClassVar[str] = "pigeons"
    has_secret: ClassVar[bool] = False
    need: ClassVar[Need] = "sqs"
    kind: Literal["pigeons"] = "pigeons"
    existing: None = None
    oldest_seconds: int = 120

    def for_workers(self, service: str, found: Mapping[str, str]) -> agent.Queue:
        return agent.Queue(found["loft"], url=URL)


def _declare(args: QueueArgs[Pigeons]) -> DeclaredQueue:
    fly = Statement("Fly", ["pigeons:Fly"], ["loft"])
    watch = Statement("Watch", ["pigeons:Watch"], ["loft"])
    place = WatchedQueue(args.service, "pigeons", "loft", "roof")
    return DeclaredQueue(
        args.service,
        args.settings,  # type: ignore[arg-type]
        found={"loft": "loft-1"},
        watched=pulumi.Output.from_input(place),
        access=QueueAccess("pigeons", work=[fly], watch=[watch]),
        own_alarms=[AlarmSpec("inference-queue-rain", "Rain.", "Sky", "Rain", {}, "Maximum", at_least=1)],
        outputs={"loft": "loft-1"},
    )


def _with_pigeons(stack_file: Path) -> dict[str, Any]:
    """Run the program; a stack file names one of the kinds that there are, and pigeons take its place."""
    read = stack_program.read_settings

    def swapped() -> Settings:
        settings = read()
        services = [one.model_copy(update={"queue": Pigeons()}) for one in settings.services]
        return settings.model_copy(update={"services": tuple(services)})

    stack_program.read_settings = swapped
    declared.KINDS["pigeons"] = _declare  # type: ignore[index]
    return program.declared("known", "dev", stack_file)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    def change(config: dict[str, Any]) -> None:
        config["gpu-spot:services"][0] |= {"command": ["serve"], "queue": EXISTING}
        del config["gpu-spot:services"][1:]

    path = variant(tmp_path_factory.mktemp("pigeons"), change, ROOT / "Pulumi.dev.yaml")
    return Run("dev", **apart(_with_pigeons, path))


def test_every_side_lists_the_kinds_that_a_stack_file_knows() -> None:
    kinds = {kind for model in MODELS for kind in get_args(model.model_fields["kind"].annotation)}
    for known in (declared.KINDS, triggers.TRIGGERS, checked.KINDS, watched.KINDS):
        assert known.keys() == kinds


def test_a_new_kind_is_watched(made: Run) -> None:
    variables = made.the("Function", "queues")["environment"]["variables"]
    assert json.loads(variables[names.ENV_QUEUES]) == [["inference", "pigeons", "loft", "roof", ""]]
    assert '"Sid": "Watch"' in made.the("RolePolicy", "queues-function")["policy"]


def test_a_new_kinds_workers_find_it_and_may_work(made: Run) -> None:
    told = made.agent("inference-primary")["service"]["queue"]
    assert (told["name"], told["url"]) == ("loft-1", URL)
    assert '"Sid": "Fly"' in made.the("RolePolicy", "inference-instance")["policy"]


def test_a_new_kind_rings_and_says_where_it_is(made: Run) -> None:
    rings = {name.removeprefix("gpu-spot-dev-inference-queue-") for name in made.of("MetricAlarm")}
    assert rings >= {"rain", "old", "unread", "unseen"}
    assert made.exports["queues"] == {"inference": {"loft": "loft-1"}}
