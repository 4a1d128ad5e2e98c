"""The proxies of an HTTP service: HAProxy on On-Demand instances of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws

from contracts import names
from contracts.agent import config as agent
from infra.components.capacity.agent_store import AgentStore
from infra.components.capacity.launch_options import (
    AMAZON_LINUX,
    AMAZON_LINUX_ROOT,
    metadata_options,
    root_volume,
    tag_specifications,
)
from infra.components.capacity.launch_template import render_boot_data
from infra.components.http.load_balancer import HttpLoadBalancer
from infra.components.identity.identity import InstanceIdentity, InstanceIdentityArgs
from infra.components.monitoring.telemetry import Telemetry, TelemetryArgs
from infra.components.network.network import Network
from infra.iam.instance_statements import InstanceAccess
from infra.schema.services.http import Proxies
from infra.scope import Scope

PART: Final = "proxies"
PACKAGES: Final = ("amazon-cloudwatch-agent", "haproxy", "python3.13", "rsyslog")
"""Packages of Amazon Linux 2023, whose repositories are buckets in the Region: instances without a route to
the internet install them through the gateway endpoint of S3. An image is locked to its repository's version.

Source: Amazon Linux 2023 user guide, "Managing repositories and OS updates", "Python in AL2023"; release
notes, "New packages in AL2023.1" (haproxy; version 3.0 since 2023.8.20250908).
"""
_ROOT_GIB: Final = 10
_GRACE_SECONDS: Final = 300
"""Until a proxy that was launched must pass the load balancer's checks: packages are installed meanwhile."""
_MAX_HEALTHY_PERCENT: Final = 200


@dataclass(frozen=True)
class HttpProxiesArgs:
    """Arguments of ``HttpProxies``.

    Attributes:
        access: Access of the instances; the log group and the parameter are added.
        proxy: What HAProxy does, in the format of the node agent.
        security_group_id: The proxies' own.
    """

    scope: Scope
    service: str
    settings: Proxies
    proxy: agent.HttpProxy
    network: Network
    store: AgentStore
    registry_table: pulumi.Input[str]
    access: InstanceAccess
    security_group_id: pulumi.Input[str]
    load_balancer: HttpLoadBalancer
    log_retention_days: int


class HttpProxies(pulumi.ComponentResource):
    """An Auto Scaling group of fixed size across the zones, with its role, logs and launch template.

    The load balancer's checks decide about an instance. A change of the launch template replaces the
    instances one after the other: a new one takes requests before an old one is drained. Workers' instances
    are never replaced like this (docs/adr/0006); a proxy has no work but requests, which drain.
    """

    group_name: pulumi.Output[str]

    def __init__(self, name: str, args: HttpProxiesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the proxies."""
        super().__init__("gpu-spot:infra:HttpProxies", name, None, opts)
        self._args, self._logical_name = args, name
        self._child = pulumi.ResourceOptions(parent=self)
        scope, service = args.scope, args.service
        telemetry = Telemetry(
            scope.name(service, PART, "telemetry"),
            TelemetryArgs(scope, service, args.log_retention_days, part=PART),
            self._child,
        )
        access = dataclasses.replace(
            args.access,
            log_group=telemetry.log_group_arn,
            cloudwatch_parameter=scope.arn("ssm", f"parameter{telemetry.parameter_name}"),
        )
        identity = InstanceIdentity(
            scope.name(service, PART, "instance"),
            InstanceIdentityArgs(scope, service, access, PART),
            self._child,
        )
        template = self._template(telemetry, identity)
        self.group_name = self._group(template, [identity, telemetry]).name
        self.register_outputs({"group": self.group_name})

    def _instance_tags(self) -> dict[str, str]:
        """Return the tags of instances: without the group's, so that nothing takes them for workers."""
        args = self._args
        return {**args.scope.tags(self._logical_name), names.TAG_PROXY: args.service}

    def _template(self, telemetry: Telemetry, identity: InstanceIdentity) -> aws.ec2.LaunchTemplate:
        args, scope = self._args, self._args.scope
        config = pulumi.Output.from_input(args.registry_table).apply(
            lambda table: agent.Config(
                region=scope.region,
                stack=scope.stack,
                group=args.service,
                group_role="primary",
                registry_table=table,
                proxy=args.proxy,
                metrics=agent.Metrics(log_group=telemetry.log_group_name),
                nvidia=False,
            )
        )
        boot_data = pulumi.Output.all(bucket=args.store.bucket, agent=config).apply(
            lambda outputs: render_boot_data(
                args.store, telemetry.parameter_name, **outputs, packages=PACKAGES
            )
        )
        tags = self._instance_tags()
        return aws.ec2.LaunchTemplate(
            self._logical_name,
            description=boot_data.apply(lambda parts: f"proxies of {args.service}. {parts[1]}"),
            image_id=AMAZON_LINUX.format(architecture=args.settings.architecture),
            iam_instance_profile=aws.ec2.LaunchTemplateIamInstanceProfileArgs(arn=identity.profile_arn),
            vpc_security_group_ids=[*args.network.security_group_ids, args.security_group_id],
            metadata_options=metadata_options(with_tags=True),
            block_device_mappings=[root_volume(scope, AMAZON_LINUX_ROOT, _ROOT_GIB)],
            tag_specifications=tag_specifications(tags, ("instance", "volume", "network-interface")),
            user_data=boot_data.apply(lambda parts: parts[0]),
            update_default_version=True,
            tags=tags,
            opts=pulumi.ResourceOptions(parent=self, hide_diffs=["userData"]),
        )

    def _group(
        self, template: aws.ec2.LaunchTemplate, depends_on: Sequence[pulumi.Resource]
    ) -> aws.autoscaling.Group:
        args, settings = self._args, self._args.settings
        count = settings.count
        return aws.autoscaling.Group(
            self._logical_name,
            min_size=count,
            # A replacement starts beside the instance that it replaces.
            max_size=2 * count,
            desired_capacity=count,
            vpc_zone_identifiers=[*args.network.subnet_ids.values()],
            mixed_instances_policy=aws.autoscaling.GroupMixedInstancesPolicyArgs(
                instances_distribution=aws.autoscaling.GroupMixedInstancesPolicyInstancesDistributionArgs(
                    on_demand_base_capacity=0, on_demand_percentage_above_base_capacity=100
                ),
                launch_template=aws.autoscaling.GroupMixedInstancesPolicyLaunchTemplateArgs(
                    launch_template_specification=aws.autoscaling.GroupMixedInstancesPolicyLaunchTemplateLaunchTemplateSpecificationArgs(
                        launch_template_id=template.id, version=template.latest_version.apply(str)
                    ),
                    overrides=[
                        aws.autoscaling.GroupMixedInstancesPolicyLaunchTemplateOverrideArgs(
                            instance_type=settings.instance_type
                        )
                    ],
                ),
            ),
            target_group_arns=[args.load_balancer.target_group_arn],
            health_check_type="ELB",
            health_check_grace_period=_GRACE_SECONDS,
            # The replacement of an unhealthy proxy starts before that ends.
            instance_maintenance_policy=aws.autoscaling.GroupInstanceMaintenancePolicyArgs(
                min_healthy_percentage=100, max_healthy_percentage=_MAX_HEALTHY_PERCENT
            ),
            # No rollback: AWS supports none for a template whose image is a parameter (Auto Scaling guide,
            # "Undo changes with a rollback"). At 100 percent, broken proxies replace none that work.
            instance_refresh=aws.autoscaling.GroupInstanceRefreshArgs(
                strategy="Rolling",
                preferences=aws.autoscaling.GroupInstanceRefreshPreferencesArgs(
                    min_healthy_percentage=100, max_healthy_percentage=_MAX_HEALTHY_PERCENT
                ),
            ),
            # A lack of capacity must not fail the deployment: an alarm reports it.
            wait_for_capacity_timeout="0",
            # Else a deletion waits for requests longer than the provider does.
            force_delete=True,
            tags=[
                aws.autoscaling.GroupTagArgs(key=key, value=value, propagate_at_launch=True)
                for key, value in self._instance_tags().items()
            ],
            opts=pulumi.ResourceOptions(
                parent=self, depends_on=[args.network, args.load_balancer.listener, *depends_on]
            ),
        )
