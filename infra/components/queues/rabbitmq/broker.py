"""A service's own RabbitMQ broker in Amazon MQ, and the secret with which workers find it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws

from infra.catalogue.broker_types import MODES
from infra.schema.services.queues.rabbitmq import OwnBroker
from infra.scope import Scope

_AMQPS: Final = 5671
_MANAGEMENT: Final = 443
_USER: Final = "gpu-spot"
_PASSWORD_LETTERS: Final = 32
_LONGEST_NAME: Final = 50
"""Of a broker (Amazon MQ API, ``CreateBrokerRequest``)."""
_ZONES: Final = 3
"""A cluster has three nodes."""

_PASSWORD: Final = "PASSWORD"  # noqa: S105 - a label
_URL: Final = "URL"
"""Labels that keep a version from being deleted: Secrets Manager removes those without any."""


@dataclass(frozen=True)
class BrokerArgs:
    """``service`` names whose queue it is; ``subnet_ids`` by zone; ``workers`` is their security group."""

    scope: Scope
    service: str
    settings: OwnBroker
    vpc_id: pulumi.Input[str]
    subnet_ids: Mapping[str, pulumi.Input[str]]
    workers: pulumi.Input[str]


class Broker(pulumi.ComponentResource):
    """Produces: broker (private, TLS only, encrypted), its security group, a secret with its URL.

    ``secret_name`` is known once the URL is in the secret, so who depends on it starts after the broker.
    """

    name: pulumi.Output[str]
    console_url: pulumi.Output[str]
    secret_name: pulumi.Output[str]

    def __init__(self, name: str, args: BrokerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the broker."""
        super().__init__("gpu-spot:infra:Broker", name, None, opts)
        self._args, self._title, self._child = args, name, pulumi.ResourceOptions(parent=self)
        secret = aws.secretsmanager.Secret(
            name,
            description=f"Where the queue of {args.service} is: amqps://user:password@host:port",
            kms_key_id=args.scope.kms_key_arn,
            tags=args.scope.tags(name, group=args.service),
            opts=args.scope.stateful(self),
        )
        password = self._password(secret)
        broker = self._broker(password)
        first = broker.instances[0]
        url = self._kept_version(
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
            # Who rotates the password moves AWSCURRENT to a version of their own.
            ignored=["versionStages"],
        )
        self.name = broker.broker_name
        self.console_url = first.apply(lambda instance: str(instance.console_url or ""))
        self.secret_name = pulumi.Output.all(secret.name, url.version_id).apply(lambda known: str(known[0]))
        self.register_outputs({"secret": self.secret_name})

    def _password(self, secret: aws.secretsmanager.Secret) -> pulumi.Output[str]:
        """Return the password that was drawn at the first `up`.

        A new one is drawn in every run, and ignored from the second on: what counts is the secret's version.
        It cannot be kept in the broker, of which AWS tells no users, so that the provider forgets them.
        """
        drawn = aws.secretsmanager.get_random_password_output(
            password_length=_PASSWORD_LETTERS,
            # A broker's password may not have `,:=`, a URL some others.
            exclude_punctuation=True,
            opts=self._args.scope.asking,
        ).random_password
        version = self._kept_version(
            _PASSWORD, secret, drawn, [_PASSWORD], ignored=["secretString", "versionStages"]
        )
        kept: pulumi.Output[str] = version.secret_string.apply(lambda text: str(text))
        return kept

    def _kept_version(
        self,
        label: str,
        secret: aws.secretsmanager.Secret,
        text: pulumi.Input[str],
        stages: list[str],
        ignored: list[str],
    ) -> aws.secretsmanager.SecretVersion:
        return aws.secretsmanager.SecretVersion(
            f"{self._title}-{label.lower()}",
            secret_id=secret.id,
            secret_string=pulumi.Output.secret(text),
            version_stages=stages,
            # A version goes with its secret. By itself it cannot: its label is on its successor by then.
            opts=pulumi.ResourceOptions(parent=self, ignore_changes=ignored, retain_on_delete=True),
        )

    def _broker(self, password: pulumi.Input[str]) -> aws.mq.Broker:
        args, settings = self._args, self._args.settings
        subnets = list(args.subnet_ids.values())
        return aws.mq.Broker(
            self._title,
            engine_type="RabbitMQ",
            engine_version=settings.engine_version,
            host_instance_type=settings.instance_type,
            deployment_mode=MODES[settings.deployment],
            # From RabbitMQ 3.13 on AWS takes nothing else (CreateBroker).
            auto_minor_version_upgrade=True,
            # What wants a restart waits for the maintenance window.
            apply_immediately=False,
            maintenance_window_start_time=aws.mq.BrokerMaintenanceWindowStartTimeArgs(
                day_of_week=settings.maintenance.day.upper(),
                time_of_day=settings.maintenance.time,
                time_zone="UTC",
            ),
            publicly_accessible=False,
            # A single one takes exactly one subnet (CreateBroker).
            subnet_ids=subnets[:_ZONES] if settings.deployment == "cluster" else subnets[:1],
            security_groups=[self._security_group().id],
            logs=aws.mq.BrokerLogsArgs(general=True),
            # Exactly one at creation; the others are made in RabbitMQ's own management API.
            users=[aws.mq.BrokerUserArgs(username=_USER, password=password)],
            tags=args.scope.tags(self._title, group=args.service),
            opts=pulumi.ResourceOptions.merge(
                args.scope.stateful(self),
                # Users change in RabbitMQ alone; another zone in the network is no reason for a new broker.
                pulumi.ResourceOptions(ignore_changes=["users", "subnetIds"]),
            ),
        )

    def _security_group(self) -> aws.ec2.SecurityGroup:
        """Declare the broker's group. It stays: AWS changes no security groups of a RabbitMQ broker."""
        args, name = self._args, self._title
        group = aws.ec2.SecurityGroup(
            name,
            vpc_id=args.vpc_id,
            description="RabbitMQ: AMQPS and management from workers and callers, nothing out",
            tags=args.scope.tags(name, group=args.service),
            opts=self._child,
        )
        for port in (_AMQPS, _MANAGEMENT):
            self._rule(group, port, "workers", source=args.workers)
            for caller in args.settings.callers:
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
        who: str,
        *,
        source: pulumi.Input[str] | None = None,
        network: str | None = None,
    ) -> None:
        aws.vpc.SecurityGroupIngressRule(
            f"{self._title}-{who.replace('.', '-').replace('/', '-')}-{port}",
            security_group_id=group.id,
            ip_protocol="tcp",
            from_port=port,
            to_port=port,
            referenced_security_group_id=source,
            cidr_ipv4=network,
            description=f"{'AMQPS' if port == _AMQPS else 'management'} from {who}",
            tags=self._args.scope.tags(self._title, group=self._args.service),
            opts=self._child,
        )


def broker_name(scope: Scope, service: str) -> str:
    """Return the logical name of a service's broker; raises ``SettingsError`` for one that is too long."""
    return scope.name(service, "mq", limit=_LONGEST_NAME)
