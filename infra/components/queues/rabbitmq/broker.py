"""A RabbitMQ broker in Amazon MQ, and the secret with its URL for workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws

from infra.catalogue.broker_types import MODES
from infra.components.network.network import Network
from infra.schema.services.queues.rabbitmq import CreatedBroker
from infra.scope import Scope

AMQPS: Final = 5671
_MANAGEMENT: Final = 443
_USER: Final = "gpu-spot"
_PASSWORD_LENGTH: Final = 32
_MAX_NAME_LENGTH: Final = 50
"""Source: Amazon MQ API, ``CreateBrokerRequest``."""
_CLUSTER_NODES: Final = 3


_PASSWORD: Final = "PASSWORD"  # noqa: S105 - a label
_URL: Final = "URL"
"""Staging labels: Secrets Manager deletes versions without one."""


@dataclass(frozen=True)
class BrokerArgs:
    """``service`` is the service whose broker it is; its workers are in ``network``."""

    scope: Scope
    service: str
    settings: CreatedBroker
    network: Network


class Broker(pulumi.ComponentResource):
    """A private, encrypted broker that accepts TLS only, its security group, and a secret with its URL.

    ``secret_name`` depends on the URL in the secret, so what uses it is created after the broker.
    """

    name: pulumi.Output[str]
    console_url: pulumi.Output[str]
    secret_name: pulumi.Output[str]
    security_group_id: pulumi.Output[str]

    def __init__(self, name: str, args: BrokerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the broker."""
        super().__init__("gpu-spot:infra:Broker", name, None, opts)
        self._args, self._logical_name, self._child = args, name, pulumi.ResourceOptions(parent=self)
        secret = aws.secretsmanager.Secret(
            name,
            description=f"Where the queue of {args.service} is: amqps://user:password@host:port",
            kms_key_id=args.scope.kms_key_arn,
            tags=args.scope.tags(name, group=args.service),
            opts=args.scope.stateful_options(self),
        )
        password = self._password(secret)
        self.security_group_id = self._security_group().id
        broker = self._broker(password)
        # Its subnets cannot change, and AWS deletes none with a broker in it.
        subnets = args.network.remaining(broker.subnet_ids, f"the broker of {args.service!r}")
        first = subnets.apply(lambda _: broker.instances[0])
        url = self._secret_version(
            _URL,
            secret,
            pulumi.Output.concat(
                "amqps://",
                _USER,
                ":",
                password,
                "@",
                first.apply(lambda instance: str((instance.endpoints or [""])[0]).removeprefix("amqps://")),
            ),
            ["AWSCURRENT", _URL],
            # A rotation of the password moves AWSCURRENT to another version.
            ignored=["versionStages"],
        )
        self.name = broker.broker_name
        self.console_url = first.apply(lambda instance: str(instance.console_url or ""))
        self.secret_name = pulumi.Output.all(secret.name, url.version_id).apply(lambda values: str(values[0]))
        self.register_outputs({"secret": self.secret_name})

    def _password(self, secret: aws.secretsmanager.Secret) -> pulumi.Output[str]:
        """Return the password that the first `pulumi up` generated.

        Each run generates one, ignored from the second run on: the secret's version keeps the first. The
        broker's state cannot keep it, because AWS returns no users of a RabbitMQ broker.
        """
        generated = aws.secretsmanager.get_random_password_output(
            password_length=_PASSWORD_LENGTH,
            # A broker's password must not contain `,:=`, a URL several others.
            exclude_punctuation=True,
            opts=self._args.scope.invoke_options,
        ).random_password
        version = self._secret_version(
            _PASSWORD, secret, generated, [_PASSWORD], ignored=["secretString", "versionStages"]
        )
        password: pulumi.Output[str] = version.secret_string.apply(lambda text: str(text))
        return password

    def _secret_version(
        self,
        label: str,
        secret: aws.secretsmanager.Secret,
        text: pulumi.Input[str],
        stages: list[str],
        ignored: list[str],
    ) -> aws.secretsmanager.SecretVersion:
        return aws.secretsmanager.SecretVersion(
            f"{self._logical_name}-{label.lower()}",
            secret_id=secret.id,
            secret_string=pulumi.Output.secret(text),
            version_stages=stages,
            # A version is deleted with its secret; alone it cannot be, as its label has moved by then.
            opts=pulumi.ResourceOptions(parent=self, ignore_changes=ignored, retain_on_delete=True),
        )

    def _broker(self, password: pulumi.Input[str]) -> aws.mq.Broker:
        args, settings = self._args, self._args.settings
        subnets = list(args.network.subnet_ids.values())
        return aws.mq.Broker(
            self._logical_name,
            engine_type="RabbitMQ",
            engine_version=settings.engine_version,
            host_instance_type=settings.instance_type,
            deployment_mode=MODES[settings.deployment],
            # Required from RabbitMQ 3.13 on (CreateBroker).
            auto_minor_version_upgrade=True,
            # Changes that need a restart wait for the maintenance window.
            apply_immediately=False,
            maintenance_window_start_time=aws.mq.BrokerMaintenanceWindowStartTimeArgs(
                day_of_week=settings.maintenance.day.upper(),
                time_of_day=settings.maintenance.time,
                time_zone="UTC",
            ),
            publicly_accessible=False,
            # A single-instance broker has exactly one subnet (CreateBroker).
            subnet_ids=subnets[:_CLUSTER_NODES] if settings.deployment == "cluster" else subnets[:1],
            security_groups=[self.security_group_id],
            logs=aws.mq.BrokerLogsArgs(general=True),
            # Exactly one at creation; others are created with RabbitMQ's management API.
            users=[aws.mq.BrokerUserArgs(username=_USER, password=password)],
            tags=args.scope.tags(self._logical_name, group=args.service),
            opts=pulumi.ResourceOptions.merge(
                args.scope.stateful_options(self),
                # Users change in RabbitMQ only; a new zone in the network must not replace the broker.
                pulumi.ResourceOptions(ignore_changes=["users", "subnetIds"]),
            ),
        )

    def _security_group(self) -> aws.ec2.SecurityGroup:
        """Declare the broker's security group, which AWS cannot change after creation."""
        args, name = self._args, self._logical_name
        group = aws.ec2.SecurityGroup(
            name,
            vpc_id=args.network.vpc_id,
            description="RabbitMQ: AMQPS and management from workers and callers, nothing out",
            tags=args.scope.tags(name, group=args.service),
            opts=self._child,
        )
        for port in (AMQPS, _MANAGEMENT):
            self._rule(group, port, "workers", source=args.network.worker_security_group_id)
            for caller in args.settings.allowed_sources:
                is_group = caller.startswith("sg-")
                self._rule(
                    group,
                    port,
                    caller,
                    source=caller if is_group else None,
                    network=None if is_group else caller,
                )
        return group

    def _rule(
        self,
        group: aws.ec2.SecurityGroup,
        port: int,
        source_name: str,
        *,
        source: pulumi.Input[str] | None = None,
        network: str | None = None,
    ) -> None:
        aws.vpc.SecurityGroupIngressRule(
            f"{self._logical_name}-{source_name.replace('.', '-').replace('/', '-')}-{port}",
            security_group_id=group.id,
            ip_protocol="tcp",
            from_port=port,
            to_port=port,
            referenced_security_group_id=source,
            cidr_ipv4=network,
            description=f"{'AMQPS' if port == AMQPS else 'management'} from {source_name}",
            tags=self._args.scope.tags(self._logical_name, group=self._args.service),
            opts=self._child,
        )


def broker_name(scope: Scope, service: str) -> str:
    """Return the logical name of a service's broker; raises ``SettingsError`` if it is too long."""
    return scope.name(service, "mq", limit=_MAX_NAME_LENGTH)
