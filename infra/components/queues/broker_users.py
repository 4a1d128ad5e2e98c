"""The function that maintains the users of the stack's brokers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pulumi

from contracts import broker_users, names
from contracts.broker_users import BrokerUser, ManagedBroker
from infra.components.control.scheduled_function import FunctionArgs, FunctionContext, ScheduledFunction
from infra.components.network.network import Network
from infra.components.queues.declared_queue import ManagedQueue
from infra.iam import rabbitmq_statements

SHORT: Final = "broker-users"
_TIMEOUT_SECONDS: Final = 50


@dataclass(frozen=True)
class BrokerUsersArgs:
    """``queues`` are those on brokers of the stack."""

    context: FunctionContext
    queues: Sequence[ManagedQueue]
    network: Network


class BrokerUsers(pulumi.ComponentResource):
    """A function in the private subnets that runs each minute, the only reader of administrators' secrets.

    It has the workers' security groups, which the brokers admit.
    """

    function_name: pulumi.Output[str]

    def __init__(self, name: str, args: BrokerUsersArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the function."""
        super().__init__("gpu-spot:infra:BrokerUsers", name, None, opts)
        scope = args.context.scope
        secrets = [secret for queue in args.queues for secret in (queue.administrator, *queue.secrets)]
        function = ScheduledFunction(
            name,
            FunctionArgs(
                context=args.context,
                short=SHORT,
                description="Maintains the users of RabbitMQ brokers",
                handler=names.BROKER_USERS_HANDLER,
                service=names.SERVICE_BROKER_USERS,
                timeout_seconds=_TIMEOUT_SECONDS,
                # Queues on one broker have one administrator.
                statements=rabbitmq_statements.broker_users(
                    scope, scope.physical(scope.name(SHORT)), [*dict.fromkeys(secrets)]
                ),
                environment={names.ENV_BROKERS: _environment(args.queues)},
                network=args.network,
            ),
            pulumi.ResourceOptions(parent=self),
        )
        self.function_name = function.function_name
        self.register_outputs({"function": self.function_name})


def _environment(queues: Sequence[ManagedQueue]) -> pulumi.Output[str]:
    """Return the brokers in the format of the function."""

    def brokers(values: Sequence[Any]) -> str:
        by_administrator: dict[str, ManagedBroker] = {}
        for queue, (administrator, *users) in zip(queues, values, strict=True):
            present = by_administrator.get(administrator, ManagedBroker(administrator, (), ()))
            by_administrator[administrator] = ManagedBroker(
                administrator, (*present.queues, queue.queue), _unique(present.users, users)
            )
        return broker_users.dumps(by_administrator.values())

    values = (pulumi.Output.all(queue.administrator, *queue.users) for queue in queues)
    return pulumi.Output.all(*values).apply(brokers)


def _unique(present: Sequence[BrokerUser], users: Sequence[BrokerUser]) -> tuple[BrokerUser, ...]:
    """Return both without repetition: queues on one broker share the user who reads lengths."""
    return tuple(dict.fromkeys((*present, *users)))
