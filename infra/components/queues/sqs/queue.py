"""A service's SQS queue, its dead-letter queue, and a policy for callers."""

from __future__ import annotations

import hashlib
from typing import Final

import pulumi
import pulumi_aws as aws

from contracts.watched_queue import WatchedQueue
from infra.components.monitoring.alarm_spec import AlarmSpec, Condition, MetricSource
from infra.components.queues.declared_queue import DeclaredQueue, QueueArgs
from infra.iam import sqs_statements
from infra.iam.sqs_statements import SqsArns
from infra.iam.statement import document
from infra.schema.services.queues.sqs import ExistingSqs, SqsQueue

_DAY: Final = 86_400
_MAX_NAME_LENGTH: Final = 55
"""Leaves room for the suffix of reply queues' names."""
_POLL_SECONDS: Final = 20
_DEAD_LETTER_DAYS: Final = 14


def declare(args: QueueArgs[SqsQueue]) -> DeclaredQueue:
    """Declare a service's queues, or only the policy for callers if they exist."""
    service, kind = args.service, args.settings.kind
    sqs = Sqs(args.scope.name(service, "sqs"), args, args.scope.child_options)
    return DeclaredQueue(
        service,
        args.settings,
        attributes={"name": sqs.name, "url": sqs.url},
        watched=pulumi.Output.all(sqs.name, sqs.account_id).apply(
            lambda name_and_account: WatchedQueue(service, kind, *name_and_account)
        ),
        access=sqs_statements.access(sqs.arns),
        extra_alarms=[
            AlarmSpec(
                f"{service}-queue-dead-letters",
                f"The dead-letter queue of {service} has a message: it reached its maximum deliveries, or it "
                "failed and has no reply address.",
                MetricSource("AWS/SQS", {"QueueName": sqs.dead_letter_name}),
                "ApproximateNumberOfMessagesVisible",
                Condition("Maximum"),
            )
        ],
        outputs={
            "url": sqs.url,
            "queue": sqs.name,
            "deadLetters": sqs.dead_letter_name,
            "callers": sqs.callers_policy,
        },
    )


def reply_prefix(name: str) -> str:
    """Return the beginning of the names of a queue's reply queues, as ``spot_work`` makes them."""
    if len(name) > _MAX_NAME_LENGTH:
        name = f"{name[:46]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return f"{name}-answers-"


def _of_account(existing: ExistingSqs, account: str) -> str:
    """Return the name of a queue; raise ``RunError`` if it is in another account than the stack."""
    if existing.account not in (None, account):
        raise pulumi.RunError(
            f"queue.existing.queue must be in account {account}, that of the stack; "
            f"{existing.queue} is in {existing.account}"
        )
    return existing.queue


class Sqs(pulumi.ComponentResource):
    """A standard, encrypted queue and dead-letter queue that accept TLS only, and a policy for callers.

    For existing queues only the policy. ``url`` is the address that ``spot_work`` takes.
    """

    name: pulumi.Output[str]
    dead_letter_name: pulumi.Output[str]
    arns: SqsArns
    url: pulumi.Output[str]
    account_id: pulumi.Output[str]
    callers_policy: pulumi.Output[str]

    def __init__(
        self, name: str, args: QueueArgs[SqsQueue], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the queues."""
        super().__init__("gpu-spot:infra:Sqs", name, None, opts)
        self._args, self._child = args, pulumi.ResourceOptions(parent=self)
        scope, existing = args.scope, args.settings.existing
        if existing is None:
            dead_letters = self._queue("dead", _DEAD_LETTER_DAYS)
            queue = self._queue("queue", args.settings.retention_days, dead_letters)
            self.name, self.dead_letter_name = queue.name, dead_letters.name
            arns = queue.arn, dead_letters.arn
        else:
            account = pulumi.Output.from_input(scope.account_id)
            self.name = account.apply(lambda account_id: _of_account(existing, account_id))
            self.dead_letter_name = pulumi.Output.from_input(existing.dead_letters)
            arns = scope.arn("sqs", existing.queue), scope.arn("sqs", existing.dead_letters)
        replies = self.name.apply(reply_prefix)
        self.arns = SqsArns(*arns, scope.arn("sqs", pulumi.Output.concat(replies, "*")))
        self.account_id = pulumi.Output.from_input(scope.account_id)
        self.url = pulumi.Output.concat(f"sqs://{scope.region}/", self.account_id)
        policy = scope.name(args.service, "callers")
        self.callers_policy = aws.iam.Policy(
            policy,
            description=f"Send requests to {args.service}, and read their answers",
            policy=document(sqs_statements.caller(scope, self.arns)),
            tags=scope.tags(policy, group=args.service),
            opts=self._child,
        ).arn
        self.register_outputs({"name": self.name, "url": self.url})

    def _queue(self, short: str, days: int, dead_letters: aws.sqs.Queue | None = None) -> aws.sqs.Queue:
        """Declare a queue; the request queue has ``dead_letters``."""
        args, key = self._args, self._args.scope.kms_key_arn
        name = args.scope.name(args.service, short, limit=_MAX_NAME_LENGTH)
        queue = aws.sqs.Queue(
            name,
            message_retention_seconds=days * _DAY,
            visibility_timeout_seconds=args.settings.visibility_timeout if dead_letters else None,
            receive_wait_time_seconds=_POLL_SECONDS if dead_letters else None,
            redrive_policy=pulumi.Output.json_dumps(
                {"deadLetterTargetArn": dead_letters.arn, "maxReceiveCount": args.settings.max_receive_count}
            )
            if dead_letters
            else None,
            kms_master_key_id=key,
            sqs_managed_sse_enabled=True if key is None else None,
            tags=args.scope.tags(name, group=args.service),
            opts=args.scope.stateful_options(self),
        )
        aws.sqs.QueuePolicy(
            name,
            queue_url=queue.url,
            policy=document(sqs_statements.only_over_tls(queue.arn)),
            opts=self._child,
        )
        return queue
