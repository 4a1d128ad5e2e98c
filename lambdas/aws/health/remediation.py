"""Applies the health checker's decisions: requests and notifications. It terminates no instance."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from contracts import names
from contracts.group import release, replacement_requests, rollout_request
from contracts.registry import item as registry_item
from lambdas.core.health.decision import HealthDecision
from lambdas.core.health.model import Restart
from lambdas.core.rollout.state import Rollout
from lambdas.core.rollout.step import RolloutStep

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_ssm import SSMClient


@dataclass(frozen=True, slots=True)
class RemediationExecutor:
    """Writes requests and sends notifications for a stack."""

    stack: str
    ssm: SSMClient
    dynamodb: DynamoDBClient
    registry_table: str
    sns: SNSClient
    topic: str

    def write_replacement_requests(
        self, group: str, decision: HealthDecision, parameters: Mapping[str, str]
    ) -> None:
        """Write the group's replacement requests if they differ from the parameter."""
        text = replacement_requests.dump(decision.replacement_requests)
        self._put_parameter(group, names.PARAMETER_REPLACEMENT_REQUESTS, text, parameters)

    def _put_parameter(self, group: str, leaf: str, text: str, parameters: Mapping[str, str]) -> None:
        """Write a parameter of a group if it differs."""
        if parameters.get(leaf, "{}") != text:
            name = names.group_parameter(self.stack, group, leaf)
            self.ssm.put_parameter(Name=name, Value=text, Type="String", Overwrite=True)

    def apply_rollout(
        self, group: str, step: RolloutStep, parameters: Mapping[str, str], now: float
    ) -> tuple[Rollout, list[Exception]]:
        """Write the workers' releases and the request to the controller, then request the restarts.

        Return the memory, with which the next pass repeats what failed, and the errors.
        """
        memory = step.memory
        try:
            if step.releases is not None:
                item = release.dump(group, step.releases)
                digest = hashlib.sha256(item["releases"]["S"].encode()).hexdigest()
                if digest != memory.written_hash:
                    self.dynamodb.put_item(TableName=self.registry_table, Item=item)
                    memory = replace(memory, written_hash=digest)
            self._put_parameter(
                group, names.PARAMETER_ROLLOUT_REQUEST, rollout_request.dump(step.request), parameters
            )
        except Exception as error:  # restarted workers would read their old release
            return step.memory.without_hosts(restart.instance for restart in step.restarts), [error]
        failed = self.request_restarts(step.restarts, now)
        return memory.without_hosts(failed), list(failed.values())

    def request_restarts(self, restarts: Iterable[Restart], now: float) -> dict[str, Exception]:
        """Request worker restarts; return the hosts with a failed request, and the error.

        A worker without a registry item has already stopped; no item is created.
        """
        failed: dict[str, Exception] = {}
        for restart in restarts:
            try:
                self.dynamodb.update_item(
                    TableName=self.registry_table,
                    Key=registry_item.key(restart.partition, restart.instance, restart.slot),
                    UpdateExpression="SET #r = :now",
                    ConditionExpression="attribute_exists(#w)",
                    ExpressionAttributeNames={"#r": "restart", "#w": names.REGISTRY_SORT_KEY},
                    ExpressionAttributeValues={":now": {"N": str(int(now))}},
                )
            except (BotoCoreError, ClientError) as error:
                if not _is_missing(error):
                    failed[restart.instance] = error
        return failed

    def notify(self, message: tuple[str, str]) -> None:
        """Publish a message (subject and text) to the stack's alarm topic."""
        subject, text = message
        self.sns.publish(TopicArn=self.topic, Subject=subject, Message=text)


def _is_missing(error: Exception) -> bool:
    return (
        isinstance(error, ClientError)
        and error.response["Error"]["Code"] == "ConditionalCheckFailedException"
    )
