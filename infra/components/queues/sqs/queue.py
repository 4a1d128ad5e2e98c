"""A service's queue in SQS, the one of its dead letters, and who may use them."""

from __future__ import annotations

from typing import Final

import pulumi
import pulumi_aws as aws

from contracts.watched_queue import WatchedQueue
from infra.components.queues.declared_queue import DeclaredQueue, QueueArgs
from infra.components.queues.sqs import alarms
from infra.iam import sqs_statements
from infra.iam.sqs_statements import SqsArns
from infra.iam.statement import document
from infra.schema.services.queues.sqs import SqsQueue

_DAY: Final = 86_400
_LONGEST_NAME: Final = 55
"""Of a queue, so that those of answers can be named after it."""
_LONGEST_POLL: Final = 20
_DEAD_DAYS: Final = 14


def declare(args: QueueArgs[SqsQueue]) -> DeclaredQueue:
    """Declare a service's queues, or the policy for callers of those that are there."""
    service, kind = args.service, args.settings.kind
    sqs = Sqs(args.scope.name(service, "sqs"), args, args.scope.below)
    return DeclaredQueue(
        service,
        args.settings,
        found={"name": sqs.name, "url": sqs.url},
        watched=pulumi.Output.all(sqs.name, sqs.place).apply(
            lambda known: WatchedQueue(service, kind, *known)
        ),
        access=sqs_statements.access(sqs.arns),
        own_alarms=[*alarms.of_queue(service, sqs.dead_name)],
        outputs={
            "url": sqs.url,
            "queue": sqs.name,
            "deadLetters": sqs.dead_name,
            "callers": sqs.callers_policy,
        },
    )


class Sqs(pulumi.ComponentResource):
    """Produces: queue and dead-letter queue (standard, encrypted, TLS only), a policy for callers.

    Of queues that are there only the policy. ``url`` is what ``spot_work`` takes, ``place`` the account.
    """

    name: pulumi.Output[str]
    dead_name: pulumi.Output[str]
    arns: SqsArns
    url: pulumi.Output[str]
    place: pulumi.Output[str]
    callers_policy: pulumi.Output[str]

    def __init__(
        self, name: str, args: QueueArgs[SqsQueue], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the queues."""
        super().__init__("gpu-spot:infra:Sqs", name, None, opts)
        self._args, self._child = args, pulumi.ResourceOptions(parent=self)
        scope, existing = args.scope, args.settings.existing
        if existing is None:
            dead = self._queue("dead", _DEAD_DAYS)
            queue = self._queue("queue", args.settings.retention_days, dead)
            self.name, self.dead_name = queue.name, dead.name
            found = queue.arn, dead.arn
        else:
            self.name = pulumi.Output.from_input(existing.queue)
            self.dead_name = pulumi.Output.from_input(existing.dead_letters)
            found = scope.arn("sqs", existing.queue), scope.arn("sqs", existing.dead_letters)
        self.arns = SqsArns(*found, scope.arn("sqs", pulumi.Output.concat(self.name, "-answers-*")))
        self.place = pulumi.Output.from_input(scope.account_id)
        self.url = pulumi.Output.concat(f"sqs://{scope.region}/", self.place)
        policy = scope.name(args.service, "callers")
        self.callers_policy = aws.iam.Policy(
            policy,
            description=f"Send requests to {args.service}, and read their answers",
            policy=document(sqs_statements.caller(scope, self.arns)),
            tags=scope.tags(policy, group=args.service),
            opts=self._child,
        ).arn
        self.register_outputs({"name": self.name, "url": self.url})

    def _queue(self, short: str, days: int, dead: aws.sqs.Queue | None = None) -> aws.sqs.Queue:
        """Declare one; with ``dead`` that of the requests."""
        args, key = self._args, self._args.scope.kms_key_arn
        name = args.scope.name(args.service, short, limit=_LONGEST_NAME)
        queue = aws.sqs.Queue(
            name,
            message_retention_seconds=days * _DAY,
            visibility_timeout_seconds=args.settings.visibility_seconds if dead else None,
            receive_wait_time_seconds=_LONGEST_POLL if dead else None,
            redrive_policy=pulumi.Output.json_dumps(
                {"deadLetterTargetArn": dead.arn, "maxReceiveCount": args.settings.tries}
            )
            if dead
            else None,
            kms_master_key_id=key,
            sqs_managed_sse_enabled=True if key is None else None,
            tags=args.scope.tags(name, group=args.service),
            opts=args.scope.stateful(self),
        )
        aws.sqs.QueuePolicy(
            name,
            queue_url=queue.url,
            policy=document(sqs_statements.only_over_tls(queue.arn)),
            opts=self._child,
        )
        return queue
