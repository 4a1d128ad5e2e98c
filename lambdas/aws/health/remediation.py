"""Carry the health checker's decisions out: restarts, wishes, messages. It ends no instance."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from contracts import names
from contracts.group import release, rolling
from contracts.group import replacement_requests as wishes
from contracts.registry import item as registry_item
from lambdas.core.health.decision import HealthDecision
from lambdas.core.health.model import Restart
from lambdas.core.rollout.memory import Rollout
from lambdas.core.rollout.step import RolloutStep

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_ssm import SSMClient


@dataclass(frozen=True, slots=True)
class Doctor:
    """Acts for one stack through injected clients."""

    stack: str
    ssm: SSMClient
    dynamodb: DynamoDBClient
    registry_table: str
    sns: SNSClient
    topic: str

    def wish(self, group: str, decision: HealthDecision, leaves: Mapping[str, str]) -> None:
        """Write the group's wishes where they differ from what stands there."""
        text = wishes.dump(decision.wishes)
        if leaves.get(names.PARAMETER_WISHES, "{}") != text:
            name = names.group_parameter(self.stack, group, names.PARAMETER_WISHES)
            self.ssm.put_parameter(Name=name, Value=text, Type="String", Overwrite=True)

    def roll(self, group: str, step: RolloutStep, leaves: Mapping[str, str]) -> Rollout:
        """Write from what workers start, and what the controller is asked; return what is remembered since.

        The one first: whoever is then asked to start anew finds it.
        """
        memory = step.memory
        if step.releases is not None:
            row = release.dump(group, step.releases)
            text = hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()
            if text != memory.written:
                self.dynamodb.put_item(TableName=self.registry_table, Item=row)
                memory = replace(memory, written=text)
        asked = rolling.dump(step.rolling)
        if leaves.get(names.PARAMETER_ROLLING, rolling.NONE) != asked:
            name = names.group_parameter(self.stack, group, names.PARAMETER_ROLLING)
            self.ssm.put_parameter(Name=name, Value=asked, Type="String", Overwrite=True)
        return memory

    def restart(self, restarts: Iterable[Restart], now: float) -> dict[str, Exception]:
        """Ask workers to start anew; return the hosts of which one could not be asked, and why.

        Whose row is gone has ended by itself: no row is made for it.
        """
        failed: dict[str, Exception] = {}
        for one in restarts:
            try:
                self.dynamodb.update_item(
                    TableName=self.registry_table,
                    Key=registry_item.key(one.group, one.instance, one.slot),
                    UpdateExpression="SET #r = :now",
                    ConditionExpression="attribute_exists(#w)",
                    ExpressionAttributeNames={"#r": "restart", "#w": names.REGISTRY_SORT_KEY},
                    ExpressionAttributeValues={":now": {"N": str(int(now))}},
                )
            except (BotoCoreError, ClientError) as error:
                if not _is_gone(error):
                    failed[one.instance] = error
        return failed

    def tell(self, message: tuple[str, str]) -> None:
        """Send a message, a subject and a text, to whoever hears the stack's alarms."""
        subject, text = message
        self.sns.publish(TopicArn=self.topic, Subject=subject, Message=text)


def _is_gone(error: Exception) -> bool:
    return (
        isinstance(error, ClientError)
        and error.response["Error"]["Code"] == "ConditionalCheckFailedException"
    )
