"""Rules for IAM: policies of all resources, and managed policies attached to roles."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from contracts.sentences import alternatives
from policy.rules.model import ExternalFacts, PolicyRule, RuleSettings, Subject, as_list, names_setting
from policy.rules.outsiders import any_job, narrows_resources, shuts_out

_IDENTITY_BASED: Final = frozenset({"GroupPolicy", "Policy", "Role", "RolePolicy", "UserPolicy"})
"""Kinds whose policies name resources; the policies of all other kinds apply to their own resource."""

_KEYS: Final = frozenset({"Key", "KeyPolicy"})
"""Kinds of KMS, whose policies let the account's root do everything by default."""

_WITHOUT_GRANT: Final = frozenset({"VpcEndpoint", "VpcEndpointPolicy"})
"""Kinds whose policy only filters what other policies allow."""

_REFERENCE: Final = Path(__file__).with_name("without_resources.json")
WITHOUT_RESOURCES: Final = frozenset(
    f"{service}:{action}"
    for service, actions in json.loads(_REFERENCE.read_text("utf-8")).items()
    for action in actions
)
"""Actions without resource-level permissions, of the services in use: generated from the AWS Service
Authorization Reference (``tests/policy/test_mistakes.py``)."""

_ALLOWED_ON_ALL: Final = frozenset(
    {
        # As in the minimal role for Session Manager. Source: Systems Manager user guide.
        "ssm:UpdateInstanceInformation",
        # Read-only. The reference lists fleets as resources; untested on AWS.
        *("ec2:DescribeSpotFleetInstances", "ec2:DescribeSpotFleetRequestHistory"),
    }
)
_NAMES_FIRST: Final = frozenset({"codecommit", "execute-api", "s3", "sns", "sqs"})
"""Services whose ARNs begin with a name, not with a type of resources."""
_NAMELESS: Final = frozenset(
    {"autoscalinggroupname", "aws-service-role", "index", "log-stream", "service-role", "stream"}
)
"""Parts of ARNs after the type that name nothing."""
_LAUNCHING: Final = frozenset({"ec2:createfleet", "ec2:runinstances"})
"""Actions with resources that are not there yet, or that the launch template names."""

LAMBDA_IN_A_NETWORK: Final = frozenset(
    f"ec2:{action}"
    for action in (
        *("AssignPrivateIpAddresses", "CreateNetworkInterface", "DeleteNetworkInterface"),
        *("DescribeNetworkInterfaces", "DescribeSubnets", "UnassignPrivateIpAddresses"),
    )
)
"""Actions of a function in a VPC, as in AWS's managed policy AWSLambdaVPCAccessExecutionRole."""

ATTACHED: Final = frozenset(
    {
        "AmazonEBSCSIDriverPolicyV2",
        "AmazonEC2ContainerRegistryPullOnly",
        "AmazonEKSClusterPolicy",
        "AmazonEKSWorkerNodePolicy",
        "AmazonEKS_CNI_Policy",
        "AmazonSSMManagedInstanceCore",
        "ReadOnlyAccess",
        "service-role/AmazonEC2SpotFleetTaggingRole",
        "service-role/AmazonEFSCSIDriverPolicy",
    }
)
"""Managed policies of AWS that the stack attaches; ``managedPolicies`` allows more."""


def _wildcards(subject: Subject, _settings: RuleSettings, _facts: ExternalFacts) -> Iterator[str]:
    if not subject.kind or subject.kind in _WITHOUT_GRANT:
        return
    for key, document in _policies(subject.inputs):
        is_identity_based = subject.kind in _IDENTITY_BASED and key != "assumeRolePolicy"
        for statement in as_list(document.get("Statement")):
            if isinstance(statement, Mapping) and statement.get("Effect") == "Allow":
                name = statement.get("Sid") or "statement without Sid"
                is_owner = subject.kind in _KEYS and _is_owner(statement)
                messages = list(_too_wide(is_identity_based, statement, is_owner=is_owner))
                if key != "assumeRolePolicy":
                    messages += _for_any_account(statement)
                yield from (f"{name}: {text}" for text in messages)


def _policies(value: Any, key: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield all policy documents in a resource's inputs, as JSON or as objects, and their input's name."""
    if isinstance(value, str) and "Statement" in value:
        try:
            value = json.loads(value)
        except ValueError:
            return  # not a policy, or partly unknown in a preview
        if isinstance(value, Mapping) and "Statement" in value:
            yield key, value
    elif isinstance(value, Mapping):
        if "Statement" in value:
            yield key, value
        else:
            for name, inner in value.items():
                yield from _policies(inner, str(name))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _policies(inner, key)


def _too_wide(is_identity_based: bool, statement: Mapping[str, Any], *, is_owner: bool) -> Iterator[str]:
    for key in ("NotAction", "NotResource", "NotPrincipal"):
        if key in statement:
            yield f"allows with {key}; use Action, Resource and Principal"
    actions = [str(action) for action in as_list(statement.get("Action"))]
    if not is_owner:
        yield from (f"allows {action}; name the actions" for action in actions if re.search(r"[*?]", action))
    condition = statement.get("Condition")
    if _is_anybody(statement.get("Principal")) and not shuts_out(condition):
        yield (
            "allows every principal (*); name the principals, or add a condition on their "
            "account, network or source"
        )
    if statement.get("Principal") is not None and (reason := any_job(statement)):
        yield reason
    resources = [str(resource) for resource in as_list(statement.get("Resource"))]
    if is_identity_based and any(_is_everything(r, actions, condition) for r in resources):
        with_resources = sorted(
            action for action in actions if action.lower() not in _LOWER_WITHOUT_RESOURCES
        )
        if with_resources and not _LOWER_IN_A_NETWORK.issuperset(action.lower() for action in actions):
            yield f"allows {', '.join(with_resources)} on every resource (*); name the ARNs"


def _for_any_account(statement: Mapping[str, Any]) -> list[str]:
    """Return a message if a service may act for whoever asks it. IAM user guide, "The confused deputy"."""
    principals = statement.get("Principal")
    services = as_list(principals.get("Service")) if isinstance(principals, Mapping) else []
    if not services or shuts_out(statement.get("Condition")):
        return []
    return [f"allows {services[0]} for any account; set aws:SourceAccount or aws:SourceArn"]


def _is_owner(statement: Mapping[str, Any]) -> bool:
    """Whether a key's statement is for the account's root, as AWS's default key policy is.

    It lets IAM policies of the account decide. Source: KMS developer guide, "Default key policy".
    """
    principals = statement.get("Principal")
    names = as_list(principals.get("AWS")) if isinstance(principals, Mapping) else []
    return bool(names) and all(re.fullmatch(r"arn:aws[a-z-]*:iam::\d{12}:root|\d{12}", str(n)) for n in names)


def _is_anybody(principals: Any) -> bool:
    values = principals.values() if isinstance(principals, Mapping) else [principals]
    return any(re.search(r"^\*$|:iam::\*:", str(item)) for value in values for item in as_list(value))


def _is_everything(resource: str, actions: list[str], condition: Any) -> bool:
    """Whether a resource is ``*``, or an ARN that is wild after its service or its type, and not narrowed."""
    name = re.sub(r"^arn:(aws[a-z-]*|\*):[^:]*(:[^:]*:[^:]*)?(:|$)", "", resource.lower())
    if not re.sub(r"[*?/:._-]|^arn:", "", name):
        return True
    service = resource.lower().split(":")[2:3]
    if not re.search(r"[*?]", name) or _NAMES_FIRST.issuperset(service):
        return False
    parts = [part for part in re.split(r"[/:]", name)[1:] if part not in _NAMELESS]
    if any(re.search(r"[a-z0-9]", part) for part in parts):
        return False
    is_launch = service == ["ec2"] and _LAUNCHING.issuperset(action.lower() for action in actions)
    return not is_launch and not narrows_resources(condition)


def _managed(subject: Subject, settings: RuleSettings, _facts: ExternalFacts) -> Iterator[str]:
    """Check attached managed policies of AWS; policies of the account cannot be read here."""
    inputs = subject.inputs
    keys = ("managedPolicyArn", "managedPolicyArns", "policyArn", "policyArns")
    for arn in (str(arn) for key in keys if subject.kind for arn in as_list(inputs.get(key))):
        _, is_of_aws, name = arn.partition(":iam::aws:policy/")
        allowed = {*ATTACHED, *settings["managedPolicies"]}
        if is_of_aws and name not in allowed:
            yield f"has the managed policy {name}; use {alternatives(sorted(allowed))}"


_LOWER_WITHOUT_RESOURCES: Final = frozenset(
    action.lower() for action in (*WITHOUT_RESOURCES, *_ALLOWED_ON_ALL)
)
_LOWER_IN_A_NETWORK: Final = frozenset(action.lower() for action in LAMBDA_IN_A_NETWORK)

RULES: Final = (
    PolicyRule("no-wildcards", "Policies name actions, resources and principals.", "mandatory", _wildcards),
    PolicyRule(
        "managed-policies",
        "Roles have no managed policy of AWS but those that the stack needs.",
        "mandatory",
        _managed,
        settings={"managedPolicies": names_setting("More managed policies, by the name after policy/.")},
    ),
)
