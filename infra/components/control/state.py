"""DynamoDB tables: memory of the functions, worker registry, jobs."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from contracts import names
from contracts.agent.names import JOB_KEY
from infra.scope import Scope


class State(pulumi.ComponentResource):
    """Three tables, encrypted and with point-in-time recovery: memory, worker registry, jobs."""

    memory: aws.dynamodb.Table
    registry: aws.dynamodb.Table
    jobs: aws.dynamodb.Table

    def __init__(self, name: str, scope: Scope, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the tables."""
        super().__init__("gpu-spot:infra:State", name, None, opts)
        self._scope = scope
        self.memory = self._table("memory", [names.MEMORY_KEY], ttl=names.TTL)
        self.registry = self._table("registry", [names.REGISTRY_KEY, names.REGISTRY_SORT_KEY], ttl=names.TTL)
        # Without expiry: a finished job stays finished.
        self.jobs = self._table("jobs", [JOB_KEY])
        self.register_outputs(
            {"memory": self.memory.name, "registry": self.registry.name, "jobs": self.jobs.name}
        )

    def _table(self, short: str, keys: list[str], ttl: str | None = None) -> aws.dynamodb.Table:
        name = self._scope.name(short)
        return aws.dynamodb.Table(
            name,
            billing_mode="PAY_PER_REQUEST",
            attributes=[aws.dynamodb.TableAttributeArgs(name=key, type="S") for key in keys],
            hash_key=keys[0],
            range_key=keys[1] if len(keys) > 1 else None,
            ttl=aws.dynamodb.TableTtlArgs(attribute_name=ttl, enabled=True) if ttl else None,
            point_in_time_recovery=aws.dynamodb.TablePointInTimeRecoveryArgs(enabled=True),
            server_side_encryption=aws.dynamodb.TableServerSideEncryptionArgs(
                enabled=True, kms_key_arn=self._scope.kms_key_arn
            ),
            deletion_protection_enabled=self._scope.protect,
            tags=self._scope.tags(name),
            opts=self._scope.stateful_options(self),
        )
