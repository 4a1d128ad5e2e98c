"""A service in a local cloud that is played minute by minute, and what one function does there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from moto.sns.models import sns_backends

from contracts import names
from contracts.registry import queue_state
from contracts.registry.queue_state import QueueState
from lambdas.core.model import GroupRole, PurchaseOption
from pulumi_on_moto.emulator import ACCOUNT
from pulumi_on_moto.running.functions import Call
from tests.e2e.calls import Authorisation, of_function
from tests.e2e.world import START, World
from tests.iam import Request

FUNCTIONS: Final = ("scaler", "health-checker")


class Stage:
    """The service; ``function`` is the one whose requests are recorded, each kind once.

    Attributes:
        launched: time of launch by instance.
        writers: functions (empty: another) and the parameters that they wrote.
    """

    def __init__(self, world: World, function: str) -> None:
        self.world, self.cloud, self.group = world, world.cloud, world.view.name
        self.now = START + 24 * 3600.0
        self.launched: dict[str, float] = {}
        self.writers: set[tuple[str, str]] = set()
        self.registry: str = world.deployment.outputs["registryTable"]
        self.dynamodb = world.clients("dynamodb")
        self._function = function
        self._message_count = 0
        self._requests: dict[str, Request] = {}
        self._recorded: set[tuple[object, ...]] = set()
        self._authorisation = Authorisation(world.clients)
        self.cloud.listen(self._on_call)

    def _on_call(self, call: Call) -> None:
        function = next((name for name in FUNCTIONS if f"-{name}" in call.function), "")
        if call.operation == "PutParameter":
            self.writers.add((function, call.params["Name"].rpartition("/")[2]))
        once = (call.operation, call.params.get("TableName"), call.params.get("Name"))
        if function == self._function and once not in self._recorded:
            self._recorded.add(once)
            for request in self._authorisation.requests(call):
                self._requests.setdefault(repr(request), request)

    def permissions(self) -> tuple[list[dict[str, Any]], list[Request]]:
        """Return the policies of the function's role, and its observed requests."""
        return of_function(self.world.deployment, f"-{self._function}"), list(self._requests.values())

    def advance(self, seconds: float = 60.0) -> None:
        self.now += seconds
        self.cloud.set_time(self.now)

    def launch(self, kind: int = 0) -> str:
        """Launch a Spot Instance of the group's ``kind``-th type."""
        view = self.world.view
        instance = self.cloud.launch(
            self.group, GroupRole.PRIMARY, view.instance_types[kind], view.zones[kind], PurchaseOption.SPOT
        )
        self.launched[instance] = self.now
        return instance

    def launch_missing(self) -> None:
        for _ in range(
            self.cloud.desired(self.group)[0] - len(self.cloud.alive(self.group, GroupRole.PRIMARY))
        ):
            self.launch()

    def write_queue(self, state: QueueState) -> None:
        """Write the queue's state, as the queue watcher does each minute."""
        self.dynamodb.put_item(TableName=self.registry, Item=queue_state.dump(self.group, state))

    def run_functions(self) -> list[dict[str, Any]]:
        """Run what is scheduled now; return the log's entries."""
        self.cloud.tick_schedule()
        runs = self.cloud.run_functions()
        assert not [run.error for run in runs if run.error]
        return [json.loads(line) for run in runs for line in run.log if line.startswith("{")]

    def parameter(self, leaf: str) -> str:
        name = names.group_parameter(self.world.deployment.stack, self.group, leaf)
        return str(self.world.clients("ssm").get_parameter(Name=name)["Parameter"]["Value"])

    def messages(self) -> list[str]:
        """Return the subjects of new messages without the daily report."""
        topics = sns_backends[ACCOUNT][self.world.clients.region].topics
        sent: Sequence[Any] = topics[self.world.deployment.outputs["alarmTopic"]].sent_notifications
        new, self._message_count = sent[self._message_count :], len(sent)
        dropped = ("need attention", "healthy")
        return [str(one[2]) for one in new if not any(word in str(one[2]) for word in dropped)]
