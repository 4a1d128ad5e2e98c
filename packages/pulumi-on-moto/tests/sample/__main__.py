"""A program with resources of many types."""

from pathlib import Path

import pulumi
import pulumi_aws as aws

STACK = pulumi.get_stack()
SIZE = pulumi.Config().require_int("size")
SERVICES = pulumi.Config().require_object("services")
PREFIX = pulumi.Config().require("prefix")
TABLE_VARIABLE = pulumi.Config().require("tableVariable")
VARIABLES = pulumi.Config().require_object("variables")


class Network(pulumi.ComponentResource):
    """A VPC with two subnets."""

    def __init__(self, name: str) -> None:
        super().__init__("sample:index:Network", name)
        child = pulumi.ResourceOptions(parent=self)
        zones = aws.get_availability_zones(state="available").names[:2]
        self.vpc = aws.ec2.Vpc(
            name, cidr_block="10.0.0.0/16", enable_dns_hostnames=True, tags={"Name": name}, opts=child
        )
        gateway = aws.ec2.InternetGateway(name, vpc_id=self.vpc.id, opts=child)
        table = aws.ec2.RouteTable(name, vpc_id=self.vpc.id, opts=child)
        aws.ec2.Route(
            name,
            route_table_id=table.id,
            destination_cidr_block="0.0.0.0/0",
            gateway_id=gateway.id,
            opts=child,
        )
        self.subnets = []
        for index, zone in enumerate(zones):
            subnet = aws.ec2.Subnet(
                f"{name}-{index}",
                vpc_id=self.vpc.id,
                cidr_block=f"10.0.{index}.0/24",
                availability_zone=zone,
                opts=child,
            )
            aws.ec2.RouteTableAssociation(
                f"{name}-{index}", subnet_id=subnet.id, route_table_id=table.id, opts=child
            )
            self.subnets.append(subnet)
        address = aws.ec2.Eip(name, domain="vpc", opts=child)
        aws.ec2.NatGateway(name, allocation_id=address.id, subnet_id=self.subnets[0].id, opts=child)
        self.group = aws.ec2.SecurityGroup(
            name,
            vpc_id=self.vpc.id,
            egress=[{"protocol": "-1", "from_port": 0, "to_port": 0, "cidr_blocks": ["0.0.0.0/0"]}],
            opts=child,
        )
        self.register_outputs({"vpcId": self.vpc.id})


network = Network("sample")
trust = aws.iam.get_policy_document(
    statements=[
        {
            "actions": ["sts:AssumeRole"],
            "principals": [{"type": "Service", "identifiers": ["ec2.amazonaws.com", "lambda.amazonaws.com"]}],
        }
    ]
)
role = aws.iam.Role("node", assume_role_policy=trust.json)
aws.iam.RolePolicyAttachment(
    "ssm", role=role.name, policy_arn="arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"
)
profile = aws.iam.InstanceProfile("node", role=role.name)
image = aws.ssm.get_parameter(
    name="/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
)
template = aws.ec2.LaunchTemplate(
    "node",
    image_id=image.value,
    vpc_security_group_ids=[network.group.id],
    iam_instance_profile={"arn": profile.arn},
    metadata_options={
        "http_tokens": "required",
        "http_put_response_hop_limit": 1,
        "http_endpoint": "enabled",
    },
    user_data="IyEvYmluL3NoCg==",
    block_device_mappings=[{"device_name": "/dev/sda1", "ebs": {"encrypted": "true", "volume_size": 100}}],
    tag_specifications=[{"resource_type": "instance", "tags": {"sample:group": "inference"}}],
)
spec = {"launch_template_id": template.id, "version": template.latest_version.apply(str)}
primary = aws.autoscaling.Group(
    "inference",
    min_size=0,
    max_size=SIZE,
    desired_capacity=SERVICES[0]["capacity"]["target"],
    vpc_zone_identifiers=[subnet.id for subnet in network.subnets],
    capacity_rebalance=True,
    suspended_processes=["AZRebalance"],
    mixed_instances_policy={
        "instances_distribution": {
            "on_demand_base_capacity": 0,
            "on_demand_percentage_above_base_capacity": 0,
            "spot_allocation_strategy": "price-capacity-optimized",
        },
        "launch_template": {
            "launch_template_specification": spec,
            "overrides": [{"instance_type": "g5.xlarge"}, {"instance_type": "g6.xlarge"}],
        },
    },
    tags=[{"key": "sample:side", "value": "primary", "propagate_at_launch": True}],
)
fallback = aws.autoscaling.Group(
    "inference-fallback",
    min_size=0,
    max_size=SIZE,
    desired_capacity=0,
    vpc_zone_identifiers=[subnet.id for subnet in network.subnets],
    mixed_instances_policy={
        "instances_distribution": {"on_demand_percentage_above_base_capacity": 100},
        "launch_template": {
            "launch_template_specification": spec,
            "overrides": [{"instance_type": "g5.xlarge"}, {"instance_type": "g6.xlarge"}],
        },
    },
    warm_pool={"pool_state": "Stopped", "min_size": 1, "max_group_prepared_capacity": 1},
)
dead = aws.sqs.Queue("dead", sqs_managed_sse_enabled=True)
queue = aws.sqs.Queue(
    "events",
    visibility_timeout_seconds=60,
    sqs_managed_sse_enabled=True,
    redrive_policy=pulumi.Output.json_dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": 2}),
)
PATTERNS = {
    "warning": {"source": ["aws.ec2"], "detail-type": ["EC2 Spot Instance Interruption Warning"]},
    "scaling": {"source": ["aws.autoscaling"], "detail": {"AutoScalingGroupName": [{"prefix": "inference"}]}},
}
rules = [
    aws.cloudwatch.EventRule(name, event_pattern=pulumi.Output.json_dumps(pattern))
    for name, pattern in PATTERNS.items()
]
rules.append(aws.cloudwatch.EventRule("minute", schedule_expression="rate(1 minute)"))
for name, rule in zip([*PATTERNS, "minute"], rules, strict=True):
    aws.cloudwatch.EventTarget(name, rule=rule.name, arn=queue.arn)
aws.sqs.QueuePolicy(
    "events",
    queue_url=queue.url,
    policy=pulumi.Output.json_dumps(
        {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Allow",
                    "Principal": {"Service": "events.amazonaws.com"},
                    "Action": "sqs:SendMessage",
                    "Resource": queue.arn,
                    "Condition": {"ArnEquals": {"aws:SourceArn": [rule.arn for rule in rules]}},
                }
            ],
        }
    ),
)
registry = aws.dynamodb.Table(
    "workers",
    attributes=[{"name": "group", "type": "S"}, {"name": "worker", "type": "S"}],
    hash_key="group",
    range_key="worker",
    billing_mode="PAY_PER_REQUEST",
    ttl={"attribute_name": "expires", "enabled": True},
    point_in_time_recovery={"enabled": True},
)
logs = aws.cloudwatch.LogGroup("controller", name="/aws/lambda/controller", retention_in_days=30)
function = aws.lambda_.Function(
    "controller",
    role=role.arn,
    runtime="python3.13",
    handler="handlers.echo.handler",
    timeout=30,
    code=pulumi.AssetArchive(
        {
            "handlers/__init__.py": pulumi.StringAsset(""),
            "handlers/echo.py": pulumi.FileAsset(str(Path(__file__).with_name("handler_source.py"))),
            "helper_of_sample.py": pulumi.StringAsset("SEEN = []\n"),
        }
    ),
    environment={"variables": {**VARIABLES, "GROUP": "inference", TABLE_VARIABLE: registry.name}},
    reserved_concurrent_executions=2,
)
aws.lambda_.EventSourceMapping(
    "controller",
    event_source_arn=queue.arn,
    function_name=function.arn,
    batch_size=3,
    function_response_types=["ReportBatchItemFailures"],
    scaling_config={"maximum_concurrency": 2},
)
for leaf, value in {
    "config": pulumi.Output.json_dumps(
        {
            "kind": "mixed-asg",
            "primary": primary.name,
            "fallback": fallback.name,
            "base": 0,
            "spotPercentage": 100,
            "max": SIZE,
            "slots": {"g5.xlarge": 1, "g6.xlarge": 2},
            "drainSeconds": 30,
            "policy": {"name": "ready-handover", "knobs": {}},
        }
    ),
    "target": "2",
}.items():
    aws.ssm.Parameter(
        f"inference-{leaf}",
        name=f"{PREFIX}/{STACK}/groups/inference/{leaf}",
        type="String",
        value=value,
        tags={"sample:group": "inference"},
    )
echo = aws.lambda_.Function(
    "echo",
    role=role.arn,
    runtime="python3.13",
    handler="echo.handler",
    code=pulumi.AssetArchive({"echo.py": pulumi.FileAsset(str(Path(__file__).with_name("echo_source.py")))}),
)
call = aws.cloudwatch.EventRule("call", event_pattern=pulumi.Output.json_dumps({"detail-type": ["call"]}))
aws.cloudwatch.EventTarget("call", rule=call.name, arn=echo.arn)
aws.lambda_.Permission(
    "call",
    action="lambda:InvokeFunction",
    function=echo.name,
    principal="events.amazonaws.com",
    source_arn=call.arn,
)
policy = aws.iam.Policy(
    "read",
    policy={
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}],
    },
)
aws.iam.RolePolicy("inline", role=role.id, policy=policy.policy)
aws.ec2.VpcEndpoint("s3", vpc_id=network.vpc.id, service_name="com.amazonaws.us-west-2.s3")
aws.vpc.SecurityGroupIngressRule(
    "from-self",
    security_group_id=network.group.id,
    referenced_security_group_id=network.group.id,
    ip_protocol="tcp",
    from_port=2049,
    to_port=2049,
)
topic = aws.sns.Topic("people", display_name="people")
aws.sns.TopicSubscription("people", topic=topic.arn, protocol="email", endpoint="ml@example.com")
aws.autoscaling.LifecycleHook(
    "drain",
    autoscaling_group_name=primary.name,
    lifecycle_transition="autoscaling:EC2_INSTANCE_TERMINATING",
    heartbeat_timeout=120,
)
pulumi.export("topic", topic.arn.apply(lambda arn: arn.rpartition(":")[2]))
pulumi.export("queue", queue.url)
pulumi.export("secret", pulumi.Output.secret("hush"))
