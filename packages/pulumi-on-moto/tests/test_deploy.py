"""A deployment creates everything in moto, where plain boto3 sees it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from botocore.exceptions import ClientError, ParamValidationError
from rich.console import Console

from pulumi_on_moto import Deployment, LocalCloudError, outline, sandbox, tree


def test_network_is_there(deployment: Deployment) -> None:
    ec2 = deployment.clients("ec2")
    vpc = deployment.resource("aws:ec2/vpc:Vpc", "sample").id
    here = [{"Name": "vpc-id", "Values": [vpc]}]
    assert {s["AvailabilityZone"] for s in ec2.describe_subnets(Filters=here)["Subnets"]} == {
        "us-west-2a",
        "us-west-2b",
    }
    attribute = ec2.describe_vpc_attribute(VpcId=vpc, Attribute="enableDnsHostnames")
    assert attribute["EnableDnsHostnames"]["Value"] is True
    group = ec2.describe_security_groups(
        GroupIds=[deployment.resource("aws:ec2/securityGroup:SecurityGroup", "sample").id]
    )["SecurityGroups"][0]
    assert [rule["IpRanges"][0]["CidrIp"] for rule in group["IpPermissionsEgress"]] == ["0.0.0.0/0"]
    assert group["IpPermissions"][0]["UserIdGroupPairs"][0]["GroupId"] == group["GroupId"]


def test_queue_attributes_reach_aws(deployment: Deployment) -> None:
    url = deployment.outputs["queue"]
    attributes = deployment.clients("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])[
        "Attributes"
    ]
    assert attributes["VisibilityTimeout"] == "60"
    assert json.loads(attributes["RedrivePolicy"])["maxReceiveCount"] == 2
    assert "events.amazonaws.com" in attributes["Policy"]


def test_group_records_capacity_and_launches_nothing(deployment: Deployment) -> None:
    name = deployment.resource("aws:autoscaling/group:Group", "inference").id
    group = deployment.clients("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[name])[
        "AutoScalingGroups"
    ][0]
    overrides = group["MixedInstancesPolicy"]["LaunchTemplate"]["Overrides"]
    assert [item["InstanceType"] for item in overrides] == ["g5.xlarge", "g6.xlarge"]
    assert [process["ProcessName"] for process in group["SuspendedProcesses"]] == ["AZRebalance"]
    assert group["MaxSize"] == 6


def test_function_identity_and_tables_are_there(deployment: Deployment) -> None:
    clients = deployment.clients
    function = deployment.resource("aws:lambda/function:Function", "controller")
    configuration = clients("lambda").get_function_configuration(FunctionName=function.id)
    assert configuration["Handler"] == "handlers.echo.handler"
    assert configuration["Environment"]["Variables"]["GROUP"] == "inference"
    profile = deployment.resource("aws:iam/instanceProfile:InstanceProfile", "node").id
    roles = clients("iam").get_instance_profile(InstanceProfileName=profile)["InstanceProfile"]["Roles"]
    assert [role["RoleName"] for role in roles] == [deployment.resource("aws:iam/role:Role", "node").id]
    table = deployment.resource("aws:dynamodb/table:Table", "workers").id
    ttl = clients("dynamodb").describe_time_to_live(TableName=table)["TimeToLiveDescription"]
    assert ttl["AttributeName"] == "expires"
    groups = clients("logs").describe_log_groups(logGroupNamePrefix="/aws/lambda/controller")["logGroups"]
    assert groups[0]["retentionInDays"] == 30


def test_components_and_parents_are_recorded(deployment: Deployment) -> None:
    component = deployment.resource("sample:index:Network", "sample")
    vpc = deployment.resource("aws:ec2/vpc:Vpc", "sample")
    assert component.is_component
    assert vpc.parent == component.urn


def test_every_resource_with_a_tag_input_carries_it(deployment: Deployment) -> None:
    tags = deployment.clients("ssm").list_tags_for_resource(
        ResourceType="Parameter", ResourceId="/sample/dev/groups/inference/target"
    )["TagList"]
    assert tags == [{"Key": "sample:group", "Value": "inference"}]


def test_secrets_are_unwrapped_for_resources_and_hidden_in_the_tree(deployment: Deployment) -> None:
    assert deployment.outputs["secret"] == "hush"
    console = Console(width=160)
    with console.capture() as shown:
        console.print(tree(deployment))
    text = shown.get()
    assert "hush" not in text
    assert "[secret]" in text
    assert "aws:autoscaling:Group  inference-fallback" in text


def test_an_outline_counts_what_stands_below_each_component(deployment: Deployment) -> None:
    console = Console(width=160)
    with console.capture() as shown:
        console.print(outline(deployment))
    component = deployment.resource("sample:index:Network", "sample")
    below = [
        resource
        for resource in deployment.resources
        if resource.parent == component.urn and not resource.is_component
    ]
    assert f"sample:index:Network  sample  {len(below)} resources" in shown.get()
    assert "aws:ec2:Vpc  sample" not in shown.get()


def test_requests_are_validated_and_unknown_services_stay_inside(deployment: Deployment) -> None:
    with pytest.raises(ParamValidationError):
        deployment.clients("ec2").run_instances(MinCount="many", MaxCount=1)
    with pytest.raises((ClientError, LocalCloudError)):
        deployment.clients("pricing").get_products(ServiceCode="AmazonEC2")


def test_a_second_sandbox_is_refused(deployment: Deployment) -> None:
    with pytest.raises(LocalCloudError, match="already running"), sandbox("us-west-2"):
        pass


FAILING = {
    "unknown type": (
        'aws.kinesis.Stream("s", shard_count=1)',
        'aws:kinesis/stream:Stream "s": this resource type is not emulated by the local cloud; '
        'pulumi_on_moto.register("aws:kinesis/stream:Stream", Spec("service.method", …)) adds it',
    ),
    "unmapped input": (
        'aws.dynamodb.Table("t", attributes=[{"name": "k", "type": "S"}], hash_key="k",'
        ' billing_mode="PAY_PER_REQUEST", import_table={"input_format": "CSV",'
        ' "s3_bucket_source": {"bucket": "b"}})',
        "aws:dynamodb/table:Table \"t\": input 'importTable' has no mapping to dynamodb.create_table",
    ),
    "unmapped inner input": (
        'aws.ec2.Eip("e", domain="vpc", associate_with_private_ip="10.0.0.1")',
        "aws:ec2/eip:Eip \"e\": input 'associateWithPrivateIp' has no mapping to ec2.allocate_address",
    ),
    "refused by AWS's rules": (
        'aws.autoscaling.Group("g", min_size=3, max_size=2, availability_zones=["us-west-2a"],'
        ' launch_template={"id": "lt-1"})',
        'aws:autoscaling/group:Group "g": minSize 3 ≤ desiredCapacity 3 ≤ maxSize 2 does not hold',
    ),
    "refused by moto": (
        'aws.ec2.Subnet("s", vpc_id="vpc-none", cidr_block="10.0.0.0/24")',
        'aws:ec2/subnet:Subnet "s": An error occurred (InvalidVpcID.NotFound)',
    ),
    "unknown lookup": (
        "aws.ec2.get_ami(most_recent=True)",
        "lookup aws:ec2/getAmi:getAmi is not emulated by the local cloud",
    ),
    "missing parameter": (
        'aws.ssm.get_parameter(name="/none")',
        "SSM parameter '/none': ParameterNotFound in the local cloud",
    ),
    "a network that is not there": (
        'aws.ec2.get_vpc(id="vpc-0000000a")',
        "VPC 'vpc-0000000a': InvalidVpcID.NotFound in the local cloud",
    ),
    "a network by its tags": (
        'aws.ec2.get_subnet(tags={"Name": "private"})',
        "a lookup by anything but an id is not emulated by the local cloud",
    ),
    "a policy made of others": (
        'aws.iam.get_policy_document(source_policy_documents=["{}"])',
        "a policy document: sourcePolicyDocuments is not emulated by the local cloud",
    ),
    "a name that is taken": (
        'aws.sqs.Queue("q")\naws.sqs.Queue("q")',
        'aws:sqs/queue:Queue "q": this name is declared twice',
    ),
}

CALLER = """
import os, sys
from pathlib import Path
import pulumi_aws
from pulumi_on_moto import LocalCloudError, deploy, load, sandbox
for folder in sys.argv[1:]:
    if os.fork():
        os.wait()
        continue
    with sandbox("us-west-2") as clients, (Path(folder) / "said").open("w") as said:
        try:
            deploy(clients, load(folder, "dev"))
        except LocalCloudError as error:
            print(error, file=said)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory, python: Callable[..., str]) -> dict[str, str]:
    """What each failing program ends with: one process each, for Pulumi's runtime is global."""
    folders = {case: tmp_path_factory.mktemp("program") for case in FAILING}
    for case, folder in folders.items():
        (folder / "Pulumi.yaml").write_text("name: small\nruntime: python\n")
        (folder / "Pulumi.dev.yaml").write_text("config:\n  aws:region: us-west-2\n")
        (folder / "__main__.py").write_text(f"import pulumi_aws as aws\n{FAILING[case][0]}\n")
    python(CALLER, *folders.values())
    return {case: (folder / "said").read_text() for case, folder in folders.items()}


@pytest.mark.parametrize("case", FAILING)
def test_what_cannot_be_carried_out_is_one_line(case: str, said: dict[str, str]) -> None:
    assert len(said[case].splitlines()) == 1
    assert FAILING[case][1] in said[case]


FINDING = """
import json, sys
from pathlib import Path
import pulumi_aws
from pulumi_on_moto import deploy, existing_network, load, sandbox
with sandbox("us-west-2") as clients:
    existing_network(clients, "vpc-0000000a", {"us-west-2b": "subnet-0000000b"}, ["sg-0000000c"])
    print(json.dumps(dict(deploy(clients, load(sys.argv[1], "dev")).outputs)))
"""


ATTACHING = """
import sys
from pulumi_on_moto import deploy, existing_policies, load, sandbox
with sandbox("us-west-2") as clients:
    existing_policies(clients, sys.argv[2:])
    deploy(clients, load(sys.argv[1], "dev"))
    print(clients("iam").list_attached_role_policies(RoleName="r")["AttachedPolicies"])
"""


def test_a_program_attaches_policies_that_were_given_whosever_they_are(
    tmp_path: Path, python: Callable[..., str]
) -> None:
    arns = ["arn:aws:iam::210987654321:policy/of/ours", "arn:aws:iam::aws:policy/ReadOnlyAccess"]
    (tmp_path / "Pulumi.yaml").write_text("name: small\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config:\n  aws:region: us-west-2\n")
    (tmp_path / "__main__.py").write_text(
        "import pulumi_aws as aws\n"
        'role = aws.iam.Role("r", name="r", assume_role_policy="{}")\n'
        f"for arn in {arns}:\n"
        "    aws.iam.RolePolicyAttachment(arn[-5:], role=role.name, policy_arn=arn)\n"
    )
    attached = python(ATTACHING, tmp_path, *arns)
    assert all(arn in attached for arn in arns)


def test_a_program_finds_the_network_that_was_given(tmp_path: Path, python: Callable[..., str]) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: small\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config:\n  aws:region: us-west-2\n")
    (tmp_path / "__main__.py").write_text(
        "import pulumi\nimport pulumi_aws as aws\n"
        'subnet = aws.ec2.get_subnet(id="subnet-0000000b")\n'
        'group = aws.ec2.get_security_group(id="sg-0000000c")\n'
        "vpc = aws.ec2.get_vpc(id=subnet.vpc_id)\n"
        'pulumi.export("found", [vpc.id, vpc.enable_dns_hostnames, vpc.enable_dns_support])\n'
        'pulumi.export("subnet", [subnet.availability_zone, subnet.map_public_ip_on_launch])\n'
        'pulumi.export("group", group.vpc_id)\n'
    )
    assert json.loads(python(FINDING, tmp_path)) == {
        "found": ["vpc-0000000a", True, True],
        "subnet": ["us-west-2b", False],
        "group": "vpc-0000000a",
    }


ASKING = """
import pulumi, pulumi_aws as aws
provider = aws.Provider("here", region="us-west-2")
options = pulumi.ResourceOptions(provider=provider)
below = aws.ssm.Parameter("below", name="/a/b/c", type="SecureString", value="1", opts=options)
zones = aws.get_availability_zones(exclude_zone_ids=["usw2-az1"]).zone_ids
pulumi.export("zone", "usw2-az1" in zones)
pulumi.export("tagged", aws.ec2.get_instances(instance_tags={"Name": "none"}).ids)
ask = lambda _: aws.ssm.get_parameters_by_path(path="/a", recursive=True).values
pulumi.export("below", below.id.apply(ask))
aws.ssm.Parameter("unnamed", type="String", value="1")
"""
ASKED = """
import json, sys
import pulumi_aws
from pulumi_on_moto import changes, deploy, load, sandbox
with sandbox("us-west-2") as clients:
    stack = load(sys.argv[1], "dev")
    image = clients("ec2").describe_images()["Images"][0]["ImageId"]
    clients("ec2").run_instances(ImageId=image, MinCount=1, MaxCount=1)
    made = deploy(clients, stack)
    provider = made.resource("aws:ssm/parameter:Parameter", "below").provider
    again = len(changes(made, stack))
    print(json.dumps([made.outputs, provider.rpartition("::")[2], again]))
"""


def test_lookups_follow_their_arguments_and_a_parameter_needs_no_name(
    tmp_path: Path, python: Callable[..., str]
) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: small\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config:\n  aws:region: us-west-2\n")
    (tmp_path / "__main__.py").write_text(ASKING)
    outputs, provider, again = json.loads(python(ASKED, tmp_path))
    assert outputs == {"zone": False, "tagged": [], "below": ["1"]}
    assert (provider, again) == ("local-here", 0)
