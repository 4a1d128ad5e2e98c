"""Rules for the stack: names, tags, budget and alarms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from contracts import names
from policy.rules.model import UNKNOWN, ExternalFacts, PolicyRule, RuleSettings, Subject, names_setting

_TAGGED: Final = """
Broker Bucket FileSystem Function Group LaunchTemplate LoadBalancer LogGroup MetricAlarm NatGateway Parameter
Queue Repository Role Secret SecurityGroup SpotFleetRequest Subnet Table TargetGroup Topic Vpc VpcEndpoint
"""
TAGGED: Final = frozenset(_TAGGED.split())
"""Resource kinds that cost money, or that IAM conditions select by tag."""

_SELECTED_BY_NAME: Final = {"Bucket": "bucket", "Group": "name", "InstanceProfile": "name", "Secret": "name"}
"""Input with the physical name of the kinds that IAM statements select by its prefix."""
_UNTAGGED: Final = """
AccessEntry AccessPoint AccessPolicyAssociation Addon Alias BucketAcl BucketLifecycleConfiguration
BucketObjectv2 BucketOwnershipControls BucketPolicy BucketPublicAccessBlock
BucketServerSideEncryptionConfiguration BucketVersioning Budget Cluster Configuration Dashboard
DefaultSecurityGroup Document Eip EventRule EventSourceMapping EventTarget ExperimentTemplate
FileSystemPolicy FlowLog FunctionEventInvokeConfig FunctionUrl Instance InstanceProfile InternetGateway Key
LaunchConfiguration LayerVersion LifecycleHook LifecyclePolicy Listener LogMetricFilter MountTarget
NodeGroup OpenIdConnectProvider Permission PlacementGroup PodIdentityAssociation Policy Profile
QueryDefinition QueuePolicy Record RolePolicy RolePolicyAttachment Route RouteTable RouteTableAssociation
Schedule SecretPolicy SecretVersion SecurityGroupEgressRule SecurityGroupIngressRule SecurityGroupRule
TopicPolicy TopicSubscription UserPolicy Volume
"""
_MODULE_NAMES: Final = """
appautoscaling autoscaling budgets cloudwatch dynamodb ebs ec2 ecr efs eks fis iam kms lambda lb mq rds
route53 s3 scheduler secretsmanager sns sqs ssm vpc
"""
_MODULES: Final = frozenset(_MODULE_NAMES.split())
COVERED: Final = TAGGED | frozenset(_UNTAGGED.split())
"""Resource kinds that the rules were written for; what else is declared, also of other modules, is not."""


def _named(subject: Subject, _settings: RuleSettings, _facts: ExternalFacts) -> Iterator[str]:
    name = subject.inputs.get(_SELECTED_BY_NAME.get(subject.kind, ""))
    prefix = f"gpu-spot-{subject.tags.get(names.TAG_STACK, subject.stack)}-"
    if name and name != UNKNOWN and not str(name).lower().startswith(prefix.lower()):
        yield (
            f"name must begin with {prefix}, because IAM statements use the prefix "
            f"(pulumi:autonaming); it is {name}"
        )


def _tagged(subject: Subject, settings: RuleSettings, _facts: ExternalFacts) -> Iterator[str]:
    if subject.kind not in TAGGED or subject.inputs.get("tags") == UNKNOWN:
        return
    missing = [key for key in (names.TAG_STACK, *settings["required"]) if not subject.tags.get(key)]
    if missing:
        yield f"missing tags {', '.join(missing)}, which cost allocation needs"


def _watched(
    subjects: Sequence[Subject], _settings: RuleSettings, _facts: ExternalFacts
) -> Iterator[tuple[str, str]]:
    groups = {
        subject.tags[names.TAG_GROUP]: subject.urn
        for subject in subjects
        if subject.kind in ("Group", "SpotFleetRequest") and subject.tags.get(names.TAG_GROUP)
    }
    if groups and not any(subject.kind == "Budget" for subject in subjects):
        yield "", "GPU instances have no budget; set monitoring.monthlyBudgetUsd in the stack file"
    alarms = [
        subject
        for subject in subjects
        if subject.kind == "MetricAlarm" and subject.inputs.get("alarmActions")
    ]
    for group, urn in sorted(groups.items()):
        # An alarm's name is <group>-<condition>.
        if not any(alarm.name.startswith(f"{group}-") for alarm in alarms):
            yield urn, f"no alarm of {group} has an action; add one to at least one alarm"


def _covered(
    subjects: Sequence[Subject], _settings: RuleSettings, _facts: ExternalFacts
) -> Iterator[tuple[str, str]]:
    unknown = sorted({subject.type for subject in subjects if subject.kind and not _is_covered(subject)})
    if unknown:
        yield "", f"not covered: no rule was written for {', '.join(unknown)}; look at them by hand"


def _is_covered(subject: Subject) -> bool:
    """Of the module, too: a route of an API is none of a network."""
    return subject.kind in COVERED and subject.type.split(":")[1].split("/")[0] in _MODULES


RULES: Final = (
    PolicyRule(
        "covered", "Resources have types that the rules were written for.", "advisory", check_stack=_covered
    ),
    PolicyRule(
        "names", "Names that permissions select by start with the stack's prefix.", "mandatory", _named
    ),
    PolicyRule(
        "tags",
        "Resources that cost money have tags for cost allocation.",
        "mandatory",
        _tagged,
        settings={"required": names_setting("Required tags, in addition to the stack's own.")},
    ),
    PolicyRule(
        "budget-and-alarm",
        "Stacks with GPU instances have a budget and alarms.",
        "advisory",
        check_stack=_watched,
    ),
)
