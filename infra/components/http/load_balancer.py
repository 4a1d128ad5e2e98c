"""The load balancer of an HTTP service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import pulumi
import pulumi_aws as aws

from contracts import names
from infra import schema
from infra.components.http.security_groups import HEALTH_PORT, LISTEN_PORT
from infra.components.network.network import Network
from infra.components.storage.bucket import MAX_NAME_LENGTH, Bucket, BucketArgs
from infra.iam import resource_policies
from infra.schema.services.http import Http
from infra.scope import NAME_SUFFIX_LENGTH, Scope

_MAX_NAME_LENGTH: Final = 32
"""Source: Elastic Load Balancing API reference, ``CreateLoadBalancer``, ``CreateTargetGroup``."""
_NAME_PREFIX: Final = "gpu-s-"
"""As long as the provider allows."""
_TLS_POLICY: Final = "ELBSecurityPolicy-TLS13-1-2-2021-06"
"""TLS 1.3 and 1.2. Source: Application Load Balancer guide, "Security policies"."""
_CHECK_INTERVAL_SECONDS: Final = 5
_CHECK_TIMEOUT_SECONDS: Final = 2
_CHECKS: Final = 2
"""The least that AWS allows: a proxy that is lost takes requests for ten seconds at most.

Source: Elastic Load Balancing API reference, ``CreateTargetGroup``.
"""


@dataclass(frozen=True)
class HttpLoadBalancerArgs:
    """``security_group_id`` is the load balancer's own."""

    scope: Scope
    service: str
    settings: Http
    network: Network
    security_group_id: pulumi.Input[str]


class HttpLoadBalancer(pulumi.ComponentResource):
    """A load balancer in two zones or more, its listener, target group and access logs, and a DNS record.

    Attributes:
        address: URL at which callers reach the service.
        arn_suffix: The dimension ``LoadBalancer`` of its metrics.
        target_group_suffix: The dimension ``TargetGroup`` of its metrics.
        bucket_arns: Its bucket for access logs, if any.
        listener: Targets are checked, and become healthy, only once a listener uses their group.
    """

    address: pulumi.Output[str]
    target_group_arn: pulumi.Output[str]
    arn_suffix: pulumi.Output[str]
    target_group_suffix: pulumi.Output[str]
    bucket_arns: list[pulumi.Output[str]]
    listener: aws.lb.Listener

    def __init__(
        self, name: str, args: HttpLoadBalancerArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the load balancer."""
        super().__init__("gpu-spot:infra:HttpLoadBalancer", name, None, opts)
        self._args, self._child = args, pulumi.ResourceOptions(parent=self)
        self._logical_name = name
        # A physical name is the logical one with a suffix if that fits, else this prefix with one.
        fits = len(args.scope.physical(name)) + NAME_SUFFIX_LENGTH <= _MAX_NAME_LENGTH
        self._prefix = None if fits else _NAME_PREFIX
        balancer, group = self._load_balancer(), self._target_group()
        self.listener = self._listener(balancer, group)
        self.target_group_arn = group.arn
        self.arn_suffix, self.target_group_suffix = balancer.arn_suffix, group.arn_suffix
        if args.settings.domain is not None and args.settings.hosted_zone_id is not None:
            self._record(args.settings.domain, args.settings.hosted_zone_id, balancer)
        scheme = "http" if args.settings.certificate_arn is None else "https"
        host = pulumi.Output.from_input(args.settings.domain or balancer.dns_name)
        self.address = pulumi.Output.concat(scheme, "://", host)
        self.register_outputs({"address": self.address})

    def _tags(self) -> dict[str, str]:
        return self._args.scope.tags(self._logical_name, group=self._args.service)

    def _load_balancer(self) -> aws.lb.LoadBalancer:
        args, settings = self._args, self._args.settings
        bucket = self._access_logs() if settings.access_log_days else None
        self.bucket_arns = [] if bucket is None else [bucket.arn]
        return aws.lb.LoadBalancer(
            self._logical_name,
            name_prefix=self._prefix,
            load_balancer_type="application",
            internal=not settings.public,
            subnets=self._subnets(),
            security_groups=[args.security_group_id],
            idle_timeout=settings.idle_timeout_of_load_balancer,
            # Two parsers that understand a header differently are how requests are smuggled.
            drop_invalid_header_fields=True,
            # Else it appends the proxies' port to the host that the caller named.
            preserve_host_header=True,
            access_logs=None
            if bucket is None
            else aws.lb.LoadBalancerAccessLogsArgs(bucket=bucket.name, enabled=True),
            tags=self._tags(),
            # AWS writes a test object: it needs the bucket's policy.
            opts=pulumi.ResourceOptions.merge(
                args.scope.stateful_options(self),
                pulumi.ResourceOptions(depends_on=[args.network, *([] if bucket is None else [bucket])]),
            ),
        )

    def _subnets(self) -> Sequence[pulumi.Input[str]]:
        settings, network = self._args.settings, self._args.network
        if settings.subnets:
            return settings.subnets
        return [*(network.public_subnet_ids if settings.public else network.subnet_ids).values()]

    def _access_logs(self) -> Bucket:
        """Declare the bucket for access logs.

        Elastic Load Balancing supports no other encryption than S3's own keys. Source: Application Load
        Balancer guide, "Enable access logs for your Application Load Balancer", bucket requirements.
        """
        args, days = self._args, self._args.settings.access_log_days
        settings = schema.Bucket.model_validate(
            {"name": "access-logs", "expireDays": days, "oldVersionDays": 1}
        )
        return Bucket(
            args.scope.name(args.service, "access-logs", limit=MAX_NAME_LENGTH),
            BucketArgs(
                args.scope,
                settings,
                disposable=True,
                with_customer_key=False,
                writers=partial(resource_policies.access_logs, args.scope),
            ),
            self._child,
        )

    def _target_group(self) -> aws.lb.TargetGroup:
        args, settings = self._args, self._args.settings
        return aws.lb.TargetGroup(
            self._logical_name,
            name_prefix=self._prefix,
            vpc_id=args.network.vpc_id,
            target_type="instance",
            protocol="HTTP",
            # HTTP/2 carries gRPC to targets that support it, and its health checks are plain requests.
            # Source: Application Load Balancer guide, "Target groups", "Protocol version".
            protocol_version="HTTP2" if settings.protocol == "grpc" else "HTTP1",
            port=LISTEN_PORT,
            # Of proxies: a worker's requests end at the proxies.
            deregistration_delay=settings.proxies.drain_seconds,
            load_balancing_algorithm_type="least_outstanding_requests",
            health_check=aws.lb.TargetGroupHealthCheckArgs(
                path=names.PROXY_HEALTH_PATH,
                protocol="HTTP",
                port=str(HEALTH_PORT),
                interval=_CHECK_INTERVAL_SECONDS,
                timeout=_CHECK_TIMEOUT_SECONDS,
                healthy_threshold=_CHECKS,
                unhealthy_threshold=_CHECKS,
                matcher="200",
            ),
            tags=self._tags(),
            opts=self._child,
        )

    def _listener(self, balancer: aws.lb.LoadBalancer, group: aws.lb.TargetGroup) -> aws.lb.Listener:
        """Declare the only listener: none on port 80 beside TLS, which would take keys in clear text."""
        settings = self._args.settings
        is_encrypted = settings.certificate_arn is not None
        return aws.lb.Listener(
            self._logical_name,
            load_balancer_arn=balancer.arn,
            port=settings.listener_port,
            protocol="HTTPS" if is_encrypted else "HTTP",
            certificate_arn=settings.certificate_arn,
            ssl_policy=_TLS_POLICY if is_encrypted else None,
            default_actions=[aws.lb.ListenerDefaultActionArgs(type="forward", target_group_arn=group.arn)],
            tags=self._tags(),
            opts=self._child,
        )

    def _record(self, domain: str, zone: str, balancer: aws.lb.LoadBalancer) -> None:
        aws.route53.Record(
            self._logical_name,
            zone_id=zone,
            name=domain,
            type="A",
            aliases=[
                aws.route53.RecordAliasArgs(
                    name=balancer.dns_name, zone_id=balancer.zone_id, evaluate_target_health=True
                )
            ],
            opts=self._child,
        )
