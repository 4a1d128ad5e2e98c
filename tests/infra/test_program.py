"""The whole program, run as the engine runs it: what it declares, and that none of it hangs on an output."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from contracts import names
from contracts.agent import config as model
from infra.components.control import wake_ups
from infra.scope import Scope
from infra.settings import SettingsError
from lambdas.core.capacity import policies
from market.replay.groups import GroupShape
from tests.apart import apart
from tests.infra import program
from tests.infra.declared import STACKS, edited_file, edited_stack, in_capacity, in_service, run, shipped
from userdata.agent.tasks.launch import EXTENSION_SECONDS, MAX_FAILING_SECONDS

UNKNOWN = "<unknown>"

UNTAGGED = {  # these have no tags of their own in AWS
    *("BucketLifecycleConfiguration", "BucketOwnershipControls", "BucketPolicy"),
    *("BucketPublicAccessBlock", "BucketServerSideEncryptionConfiguration", "BucketVersioning"),
    *("Dashboard", "EventTarget", "FileSystemPolicy", "FunctionEventInvokeConfig", "LayerVersion"),
    *("LifecycleHook", "LifecyclePolicy", "MountTarget", "Permission", "QueuePolicy", "RolePolicy"),
    *("RolePolicyAttachment", "Route", "RouteTableAssociation", "TopicPolicy"),
}


@pytest.mark.parametrize("stack", STACKS)
def test_a_first_preview_declares_what_an_update_declares(stack: str) -> None:
    first, again, known = shipped(stack, "unknown"), shipped(stack, "unknown", 1), shipped(stack)
    assert first.identities() == again.identities() == known.identities()
    assert max(Counter(first.identities()).values()) == 1


def test_dependants_really_see_unknowns_in_a_first_preview() -> None:
    preview = run("unknown")
    assert preview.the("Subnet", "private-us-west-2a")["vpcId"] == UNKNOWN
    assert preview.the("Parameter", "inference-config")["insecureValue"] == UNKNOWN
    assert preview.the("LaunchTemplate", "inference-primary")["userData"] == UNKNOWN
    assert preview.the("Function", "controller")["role"] == UNKNOWN


def test_the_lookups_of_the_program() -> None:
    assert sorted(run("unknown").lookups) == [
        "aws:ec2/getInstances:getInstances",  # in removed zones
        "aws:ec2/getInstances:getInstances",  # without a public address
        "aws:index/getCallerIdentity:getCallerIdentity",
        "aws:index/getPartition:getPartition",
        "aws:resourcegroupstaggingapi/getResources:getResources",
        "aws:ssm/getParameter:getParameter",
    ]


@pytest.mark.parametrize(
    ("chosen", "primary"),
    [
        ({}, "resolve:ssm:/aws/service/deeplearning/"),
        ({"fallback": {"warmInstances": 0}}, "resolve:ssm:/aws/service/deeplearning/"),
        ({"instanceTypes": None, "instanceRequirements": {}}, "ami-"),
        ({"ami": "/own/image"}, "resolve:ssm:/own/image"),
        ({"ami": "ami-0000000b"}, "ami-0000000b"),
    ],
)
def test_a_template_that_may_have_a_warm_pool_or_requirements_holds_an_image_id(
    chosen: dict[str, Any], primary: str
) -> None:
    known = edited_stack(in_capacity(**chosen))
    assert known.the("LaunchTemplate", "inference-primary")["imageId"].startswith(primary)
    assert known.the("LaunchTemplate", "inference-fallback")["imageId"].startswith("ami-")


@pytest.mark.parametrize("side", ["primary", "fallback"])
def test_instances_are_protected_from_scale_in(side: str) -> None:
    assert run("known").the("Group", f"inference-{side}")["protectFromScaleIn"] is True


def test_ignored_changes_are_exactly_what_others_than_pulumi_set_and_what_is_fixed() -> None:
    ignored = {one["name"]: one["ignore_changes"] for one in run("known").declared if one["ignore_changes"]}
    assert ignored == {
        "inference-primary": ["desiredCapacity", "initialLifecycleHooks"],
        "inference-fallback": ["desiredCapacity", "initialLifecycleHooks"],
        "inference-control": ["insecureValue"],
        "inference-rolling": ["insecureValue"],
        "inference-replacements": ["insecureValue"],
        "vpc": ["cidrBlock"],
    }


@pytest.mark.parametrize("stack", STACKS)
def test_every_resource_that_can_carries_the_stack_tag(stack: str) -> None:
    for one in shipped(stack).declared:
        if not one["custom"] or one["type"].rpartition(":")[2] in UNTAGGED:
            continue
        tags = one["inputs"].get("tags", {})
        if isinstance(tags, list):
            assert all(tag["propagateAtLaunch"] for tag in tags), one["name"]
            tags = {tag["key"]: tag["value"] for tag in tags}
        assert tags.get(names.TAG_STACK) == stack, (one["type"], one["name"])
        assert tags.get("Name"), (one["type"], one["name"])


def test_what_holds_data_is_protected_in_production_and_nothing_else_is() -> None:
    protected = {one["type"] for one in shipped("prod").declared if one["protect"]}
    assert protected == {
        "aws:dynamodb/table:Table",
        "aws:ecr/repository:Repository",
        "aws:efs/fileSystem:FileSystem",
        "aws:s3/bucket:Bucket",
        # A bucket that stays without these is open, or forgets.
        "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
        "aws:s3/bucketOwnershipControls:BucketOwnershipControls",
        "aws:s3/bucketPolicy:BucketPolicy",
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
        "aws:s3/bucketVersioning:BucketVersioning",
    }
    of_the_agent = [one for one in shipped("prod").declared if one["name"] == "agent"]
    assert not any(one["protect"] for one in of_the_agent)  # built again from the sources
    assert all(table["deletionProtectionEnabled"] for table in shipped("prod").of("Table").values())
    assert not [one["name"] for one in shipped("dev").declared if one["protect"]]


@pytest.mark.parametrize("side", ["primary", "fallback"])
def test_instances_start_hardened_and_tagged(side: str) -> None:
    template = run("known").the("LaunchTemplate", f"inference-{side}")
    assert template["metadataOptions"]["httpTokens"] == "required"
    assert template["metadataOptions"]["httpPutResponseHopLimit"] == 1
    assert [d["ebs"]["encrypted"] for d in template["blockDeviceMappings"]] == ["true"]
    assert "keyName" not in template
    specified = {spec["resourceType"]: spec["tags"] for spec in template["tagSpecifications"]}
    assert set(specified) == {"instance", "volume", "network-interface"}
    owner = {names.TAG_STACK: "dev", names.TAG_GROUP: "inference", names.TAG_GROUP_ROLE: side}
    assert all(owner.items() <= tags.items() for tags in specified.values())


@pytest.mark.parametrize("side", ["primary", "fallback"])
def test_the_agent_knows_the_hooks_that_its_group_declares(side: str) -> None:
    known = run("known")
    group = known.physical(f"inference-{side}")
    [initial] = (
        one["inputs"]["initialLifecycleHooks"]
        for one in known.declared
        if one["name"] == f"inference-{side}" and "initialLifecycleHooks" in one["ignore_changes"]
    )
    # The same hooks on their own are changed in place: another initial one would replace the group.
    own = [
        {key: value for key, value in hook.items() if key != "autoscalingGroupName"}
        for hook in known.of("LifecycleHook").values()
        if hook["autoscalingGroupName"] == group
    ]
    assert own == initial
    declared = {hook["lifecycleTransition"].rpartition("_")[2]: hook for hook in own}
    hooks = model.parse(json.dumps(known.agent(f"inference-{side}"))).hooks
    assert hooks is not None
    assert declared["TERMINATING"]["name"] == hooks.terminate
    assert declared["TERMINATING"]["heartbeatTimeout"] == hooks.terminate_seconds
    # Only the fallback has warm instances, which a launch must wait for.
    assert ("LAUNCHING" in declared) == bool(hooks.launch) == (side == "fallback")
    if side == "fallback":
        assert declared["LAUNCHING"]["name"] == hooks.launch
        assert declared["LAUNCHING"]["defaultResult"] == "ABANDON"
        # The agent extends it while it pulls an image; two of its calls may be lost.
        assert declared["LAUNCHING"]["heartbeatTimeout"] > max(2 * EXTENSION_SECONDS, MAX_FAILING_SECONDS)


def test_the_primary_group_is_spot_over_all_types_and_zones() -> None:
    group = run("known").the("Group", "inference-primary")
    mix = group["mixedInstancesPolicy"]
    assert mix["instancesDistribution"]["onDemandBaseCapacity"] == 0
    assert mix["instancesDistribution"]["onDemandPercentageAboveBaseCapacity"] == 0
    assert len(mix["launchTemplate"]["overrides"]) == 4
    assert mix["launchTemplate"]["launchTemplateSpecification"]["version"] == "1"
    assert len(group["vpcZoneIdentifiers"]) == 3
    # What the rehearsal plays, and what was measured (docs/adr/0020).
    assert group["capacityRebalance"] is GroupShape(()).capacity_rebalance is False
    assert (group["minSize"], group["desiredCapacity"], group["maxSize"]) == (0, 0, 16)


def test_a_group_that_counts_gpus_weighs_every_type_on_both_sides() -> None:
    types = ["g6.xlarge", "g6.12xlarge", "g6e.xlarge"]
    sizes = in_capacity(unit="gpus", target=8, max=16, instanceTypes=types, onDemandBase=2, spotPercentage=75)
    known = edited_stack({**sizes, **in_service(slotsPerGpu=2)})
    for side in ("primary", "fallback"):
        group = known.the("Group", f"inference-{side}")
        weights = {
            one["instanceType"]: one["weightedCapacity"]
            for one in group["mixedInstancesPolicy"]["launchTemplate"]["overrides"]
        }
        assert weights == {"g6.xlarge": "1", "g6.12xlarge": "4", "g6e.xlarge": "1"}
        # What the last launch brings beyond must not keep the controller from a release.
        assert group["maxSize"] == 16 + 4
        assert "warmPool" not in group
    mix = known.the("Group", "inference-primary")["mixedInstancesPolicy"]["instancesDistribution"]
    assert (mix["onDemandBaseCapacity"], mix["onDemandPercentageAboveBaseCapacity"]) == (2, 25)
    config = known.config("inference")
    assert (config["max"], config["slots"]["g6.12xlarge"]) == (16, 8)
    for alarm, said in (
        ("shortage", "fewer ready"),
        ("on-demand", "On-Demand"),
        ("above-max", "has run more"),
    ):
        assert f"{said} GPUs " in known.alarms()[f"inference-{alarm}"]["alarmDescription"]


def test_the_fallback_is_on_demand_with_a_warm_pool_that_reuses_instances() -> None:
    assert "warmPool" not in run("known").the("Group", "inference-fallback")
    group = edited_stack(in_capacity(fallback={"warmInstances": 8})).the("Group", "inference-fallback")
    assert (
        group["mixedInstancesPolicy"]["instancesDistribution"]["onDemandPercentageAboveBaseCapacity"] == 100
    )
    # A pool of a fixed size would prepare a successor for each, and end who returns.
    assert (group["warmPool"]["minSize"], group["warmPool"]["maxGroupPreparedCapacity"]) == (0, 8)
    assert group["warmPool"]["instanceReusePolicy"] == {"reuseOnScaleIn": True}


def test_the_controller_finds_a_group_as_the_contract_says() -> None:
    known = run("known")
    parameters = {one["name"]: one["insecureValue"] for one in known.of("Parameter").values()}
    root = names.parameter_root("dev")
    assert json.loads(parameters[f"{root}/inference/config"]) == {
        "kind": "mixed-asg",
        "primary": "gpu-spot-dev-inference-primary",
        "fallback": "gpu-spot-dev-inference-fallback",
        "base": 0,
        "spotPercentage": 100,
        "max": 16,
        "slots": {"g6.xlarge": 1, "g5.xlarge": 1, "g4dn.xlarge": 1, "g6e.xlarge": 1},
        "drainSeconds": 0,
        "breakBeforeMake": False,
        "policy": {"name": policies.DEFAULT, "parameters": {}},
        "run": "",
        "dataset": "",
        "preparedBy": "",
        "byZone": False,
        "deadline": 0.0,
        "onPremises": 0,
        "onPremisesHosts": {},
        "budget": 0.0,
        "ownPrices": {},
        "reserved": 0,
        "block": "",
        "zones": ["us-west-2a", "us-west-2b", "us-west-2c"],
        # The fallback buys the first choice, whatever spot it stands in for.
        "onDemandPrices": dict.fromkeys(["g6.xlarge", "g5.xlarge", "g4dn.xlarge", "g6e.xlarge"], 0.8048),
    }
    assert parameters[f"{root}/inference/target"] == "8"
    assert json.loads(parameters[f"{root}/inference/control"]) == {"mode": "automatic"}
    environment = known.the("Function", "controller")["environment"]["variables"]
    assert environment[names.ENV_PARAMETER_ROOT] == root
    assert environment[names.ENV_MEMORY_TABLE] == "gpu-spot-dev-memory"


def test_a_message_stays_hidden_for_six_runs_of_the_function() -> None:
    known = run("known")
    timeout = known.the("Function", "controller")["timeout"]
    assert known.the("Queue", "wake-ups")["visibilityTimeoutSeconds"] >= 6 * timeout
    mapping = known.the("EventSourceMapping", "controller")
    assert mapping["functionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["scalingConfig"] == {"maximumConcurrency": 2}


def test_every_wake_up_goes_to_the_one_queue_and_a_lost_one_to_the_dead_letters() -> None:
    known = run("known")
    checks = "health-checker"
    rules = {name: rule for name, rule in known.of("EventRule").items() if name != checks}
    targets = {name: target for name, target in known.of("EventTarget").items() if name != checks}
    assert set(targets) == set(rules)
    for target in targets.values():
        assert target["arn"] == "arn:gpu-spot-dev-wake-ups"
        assert target["deadLetterConfig"] == {"arn": "arn:gpu-spot-dev-dead-letters"}
    kinds = [
        kind
        for rule in rules.values()
        if "eventPattern" in rule
        for kind in json.loads(rule["eventPattern"])["detail-type"]
    ]
    assert sorted(kinds) == [
        "AWS Health Event",
        "EC2 Instance Launch Successful",
        "EC2 Instance Launch Unsuccessful",
        "EC2 Instance Rebalance Recommendation",
        "EC2 Instance State-change Notification",
        "EC2 Instance Terminate Successful",
        "EC2 Instance Terminate Unsuccessful",
        "EC2 Spot Instance Interruption Warning",
    ]
    [schedule] = [rule["scheduleExpression"] for rule in rules.values() if "scheduleExpression" in rule]
    assert schedule == "rate(1 minute)"


@pytest.mark.parametrize(
    ("code", "wakes"),
    [
        ("AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED", True),
        ("AWS_EC2_INSTANCE_RETIREMENT_EXPEDITED", True),
        ("AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED", True),
        ("AWS_EC2_INSTANCE_STOP_SCHEDULED", True),
        ("AWS_EC2_INSTANCE_REBOOT_FLEXIBLE_MAINTENANCE_SCHEDULED", True),
        ("AWS_EC2_SYSTEM_REBOOT_MAINTENANCE_SCHEDULED", True),
        ("AWS_EC2_INSTANCE_NETWORK_MAINTENANCE_SCHEDULED", False),
        ("AWS_EC2_DEDICATED_HOST_RETIREMENT_SCHEDULED", False),
    ],
)
def test_scheduled_ends_of_instances_wake_and_mere_network_maintenance_does_not(
    code: str, wakes: bool
) -> None:
    codes = wake_ups.event_patterns("gpu-spot-dev-", has_fleets=False)["health"]["detail"]["eventTypeCode"]
    assert any(code.startswith(one["prefix"]) for one in codes) is wakes


def test_the_groups_physical_names_match_the_event_pattern() -> None:
    prefix = Scope("dev", "us-west-2", "1", "aws").prefix
    naming = yaml.safe_load(Path("Pulumi.yaml").read_text())["config"]["pulumi:autonaming"]["value"]
    pattern = naming["providers"]["aws"]["pattern"]
    assert pattern.replace("${stack}", "dev") == f"{prefix}${{name}}-${{hex(7)}}"
    assert not any("dev" in name for _, name in run("known").identities())
    assert wake_ups.event_patterns(prefix, has_fleets=False)["launch"]["detail"] == {
        "AutoScalingGroupName": [{"prefix": prefix}]
    }


def test_exports_name_what_a_user_needs_next() -> None:
    exports = run("known").exports
    assert exports["followDecisions"] == "aws logs tail gpu-spot-dev-controller --follow --region us-west-2"
    assert exports["groups"]["inference"]["primary"] == "gpu-spot-dev-inference-primary"


def test_without_fallback_there_is_no_second_group() -> None:
    known = edited_stack(in_capacity(fallback={"enabled": False}))
    assert list(known.of("Group")) == ["inference-primary"]
    assert list(known.of("LaunchTemplate")) == ["inference-primary"]
    config = known.config("inference")
    assert config["fallback"] is None
    assert config["policy"]["name"] == policies.DEFAULT


def test_two_services_and_a_gateway_in_each_zone() -> None:
    first = run("known").settings["gpu-spot:services"][0]
    other = {"instanceTypes": ["g5g.xlarge"], "maxPrice": "1e1", "spotPercentage": 70}
    second = {**first, "name": "batch", "capacity": {**first["capacity"], **other}}
    gateways = {"network.egress": "nat-gateway-per-zone", "tags": {"team": "vision"}}
    gateways["monitoring.monthlyBudgetUsd"] = "1e3"  # AWS takes no 1E+3, as Python writes it
    known = edited_stack({**gateways, "services": [first, second]})
    assert len(known.of("NatGateway")) == 3
    assert set(known.of("Group")) == {
        f"{g}-{s}" for g in ("inference", "batch") for s in ("primary", "fallback")
    }
    template = known.the("LaunchTemplate", "batch-primary")
    assert "/arm64/" in template["imageId"]
    assert template["tags"]["team"] == "vision"
    distribution = known.the("Group", "batch-primary")["mixedInstancesPolicy"]["instancesDistribution"]
    assert distribution["spotMaxPrice"] == "10"
    assert known.the("Budget", "budget")["limitAmount"] == "1000"
    assert distribution["onDemandPercentageAboveBaseCapacity"] == 30


def test_wrong_settings_end_the_program_before_anything_is_declared() -> None:
    file = edited_file(in_capacity(spotPercentage=140))
    error, declared = apart(program.refused, "known", "dev", file)
    assert error.endswith("gpu-spot:services[0].capacity.spotPercentage must be at most 100, not 140.")
    assert not declared


def test_a_warning_reaches_the_engine_and_ends_nothing() -> None:
    one = {"network.zones": ["us-west-2a"], **in_capacity(instanceTypes=["g5.xlarge"])}
    warning = apart(program.warned, "unknown", "dev", edited_file(one))
    assert "one type in one zone is a single capacity pool" in warning


@pytest.mark.parametrize("stack", ["dev.eu", "dev_1", "-dev", ""])
def test_a_stack_name_that_functions_cannot_carry_is_refused(stack: str) -> None:
    with pytest.raises(SettingsError, match="letters, digits and hyphens"):
        Scope(stack, "us-west-2", "1", "aws")


def test_a_name_too_long_for_a_role_is_refused_in_one_line() -> None:
    scope = Scope("s" * 30, "us-west-2", "1", "aws")
    with pytest.raises(SettingsError, match=r"must have at most 56 characters") as caught:
        scope.name("g" * 24, "fallback")
    assert "\n" not in str(caught.value)
