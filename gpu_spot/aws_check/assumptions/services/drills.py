"""AWS FIS: interruption drills."""

from __future__ import annotations

import json
from typing import Any, Final

from gpu_spot.aws_check import cost, roles
from gpu_spot.aws_check.assumption import BilledResource, assumes
from gpu_spot.aws_check.aws_test_bed import INSTANCE_TYPE, TAG, AwsTestBed, Falsified
from infra.components.control.drills import ACTION

_MODULE: Final = "infra/components/control/drills.py"
_GUIDE: Final = 'FIS user guide, "Actions reference"'
_MINUTES: Final = BilledResource("interruption", {cost.FIS_ACTION: 4.0})


def _template(test_bed: AwsTestBed, suffix: str, tags: dict[str, str]) -> str:
    """Create an experiment template as the stack does, for one running Spot Instance with these tags."""
    arn = test_bed.arn("fis", "experiment/*")
    bound = {"StringEquals": {"aws:SourceAccount": test_bed.account.id}, "ArnLike": {"aws:SourceArn": arn}}
    condition = {"StringEquals": {f"aws:ResourceTag/{key}": value for key, value in tags.items()}}
    instances = test_bed.arn("ec2", "instance/*")
    role = roles.create_role(
        test_bed,
        suffix,
        roles.trust("fis.amazonaws.com", bound),
        [
            {"Action": "ec2:DescribeInstances", "Resource": "*"},
            {
                "Action": "ec2:SendSpotInstanceInterruptions",
                "Resource": instances,
                "Condition": condition,
            },
        ],
    )
    target: dict[str, Any] = {
        "resourceType": "aws:ec2:spot-instance",
        "resourceTags": tags,
        "filters": [{"path": "State.Name", "values": ["running"]}],
        "selectionMode": "COUNT(1)",
    }
    action = {
        "actionId": ACTION,
        "parameters": {"durationBeforeInterruption": "PT2M"},
        "targets": {"SpotInstances": "instances"},
    }
    response = test_bed.clients("fis").create_experiment_template(
        clientToken=test_bed.resource_name(suffix),
        description="check",
        roleArn=role,
        stopConditions=[{"source": "none"}],
        targets={"instances": target},
        actions={"interrupt": action},
        tags={TAG: test_bed.run},
    )
    return str(response["experimentTemplate"]["id"])


def _start(test_bed: AwsTestBed, template: str) -> str:
    experiment = test_bed.clients("fis").start_experiment(experimentTemplateId=template)["experiment"]
    return str(experiment["id"])


def _status(test_bed: AwsTestBed, experiment: str) -> str:
    return str(test_bed.clients("fis").get_experiment(id=experiment)["experiment"]["state"]["status"])


@assumes(
    _GUIDE,
    _MODULE,
    "it has another parameter or target",
    unsupported_reason="moto has no GetAction",
)
def action_of_drills(test_bed: AwsTestBed) -> str:
    """FIS has the action of drills, with durationBeforeInterruption and Spot Instances as target."""
    action = test_bed.clients("fis").get_action(id=ACTION)["action"]
    kinds = [target["resourceType"] for target in action["targets"].values()]
    if "durationBeforeInterruption" not in action["parameters"] or kinds != ["aws:ec2:spot-instance"]:
        raise Falsified(f"parameters {sorted(action['parameters'])}, targets {kinds}")
    return f"targets {', '.join(kinds)}"


@assumes(
    f'{_GUIDE}; FIS user guide, "Targets for AWS FIS"',
    "gpu_spot/drill/watching.py",
    "the experiment completes",
    resources=(_MINUTES,),
)
def drill_without_instances_fails(test_bed: AwsTestBed) -> str:
    """An experiment without an instance to interrupt ends as failed."""
    experiment = _start(test_bed, _template(test_bed, "absent", {TAG: test_bed.run, "check": "absent"}))
    ends = ("failed", "completed", "stopped")
    test_bed.wait_until(lambda: _status(test_bed, experiment) in ends, "the end of the experiment")
    if _status(test_bed, experiment) != "failed":
        raise Falsified(f"it is {_status(test_bed, experiment)}")
    return "failed"


@assumes(
    f'{_GUIDE}; EC2 user guide, "Initiate a Spot Instance interruption"',
    "docs/operations.md",
    "one of the events does not arrive, or the instance runs on",
    instances=1,
    resources=(_MINUTES,),
    unsupported_reason="the events of AWS are what is tested",
)
def drill_interrupts(test_bed: AwsTestBed) -> str:
    """A drill sends a rebalance recommendation and an interruption warning; then EC2 ends the instance."""
    ec2, events, name = test_bed.clients("ec2"), test_bed.clients("events"), test_bed.resource_name("drill")
    kinds = ["EC2 Instance Rebalance Recommendation", "EC2 Spot Instance Interruption Warning"]
    rule = events.put_rule(
        Name=name,
        EventPattern=json.dumps({"source": ["aws.ec2"], "detail-type": kinds}),
        Tags=[{"Key": TAG, "Value": test_bed.run}],
    )["RuleArn"]
    url = test_bed.queue("drill", SqsManagedSseEnabled="true")
    arn = test_bed.queue_arn(url)
    policy = roles.document(
        [
            {
                "Principal": {"Service": "events.amazonaws.com"},
                "Action": "sqs:SendMessage",
                "Resource": arn,
                "Condition": {"ArnEquals": {"aws:SourceArn": rule}},
            }
        ]
    )
    test_bed.clients("sqs").set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": arn}])
    specifications = test_bed.tag_specifications("instance", "volume")
    instance = ec2.run_instances(
        ImageId=test_bed.image,
        InstanceType=INSTANCE_TYPE,
        MinCount=1,
        MaxCount=1,
        SubnetId=next(iter(test_bed.subnets.values())),
        InstanceMarketOptions={"MarketType": "spot"},
        TagSpecifications=specifications,
    )["Instances"][0]["InstanceId"]

    def state() -> str:
        [described] = ec2.describe_instances(InstanceIds=[instance])["Reservations"][0]["Instances"]
        return str(described["State"]["Name"])

    test_bed.wait_until(lambda: state() == "running", "the instance runs")
    _start(test_bed, _template(test_bed, "interrupt", {TAG: test_bed.run}))
    arrived_at: dict[str, float] = {}

    def all_seen() -> bool:
        if message := test_bed.receive(url):
            event = json.loads(message["Body"])
            if event["detail"].get("instance-id") == instance:
                arrived_at.setdefault(event["detail-type"], test_bed.clock.now())
        return set(kinds) <= arrived_at.keys()

    test_bed.wait_until(all_seen, " and ".join(kinds))
    test_bed.wait_until(lambda: state() in ("shutting-down", "terminated"), "the end of the instance")
    return f"ended {test_bed.clock.now() - arrived_at[kinds[1]]:.0f} s after the warning"
