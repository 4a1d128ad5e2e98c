"""Permissions of the caller to create the declared resources, and service-linked roles of the account.

Source: ``SimulatePrincipalPolicy``, for any resource: it evaluates the caller's policies and boundary and the
organization's policies, but no conditions on tags. EC2 user guide, "Service-linked role for Spot Instance
requests" and "Spot Fleet permissions": only the console creates the Spot roles automatically. Auto Scaling,
Elastic Load Balancing, Amazon MQ, FIS, EFS and EKS guides, "Service-linked roles": created with the first
group, load balancer, broker, experiment, file system, cluster, managed node group. That Spot launches of a
group fail without the role is from logs of others (AuthFailure.ServiceLinkedRoleCreationNotPermitted).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from botocore.exceptions import ClientError

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.actions import ACTIONS
from gpu_spot.preflight.check_result import CheckResult, error_code
from gpu_spot.preflight.stack import Stack

_CREATED_BY_AWS: Final = {
    "aws:autoscaling/group:Group": ("AWSServiceRoleForAutoScaling", "group"),
    "aws:efs/fileSystem:FileSystem": ("AWSServiceRoleForAmazonElasticFileSystem", "file system"),
    "aws:eks/cluster:Cluster": ("AWSServiceRoleForAmazonEKS", "cluster"),
    "aws:eks/nodeGroup:NodeGroup": ("AWSServiceRoleForAmazonEKSNodegroup", "node group"),
    "aws:fis/experimentTemplate:ExperimentTemplate": ("AWSServiceRoleForFIS", "experiment"),
    "aws:lb/loadBalancer:LoadBalancer": ("AWSServiceRoleForElasticLoadBalancing", "load balancer"),
    "aws:mq/broker:Broker": ("AWSServiceRoleForAmazonMQ", "broker"),
}
"""By resource type: role, and what AWS creates it with."""


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Simulate every action that the declared resource types need."""
    if account.caller.endswith(":root"):
        finding = "the root user has all permissions"
        yield CheckResult(account.caller, "warning", finding, "use a role instead")
        return
    iam = account.clients("iam")
    needed = {action for resource in stack.declared for action in ACTIONS.get(resource.type, ())}
    pages = iam.get_paginator("simulate_principal_policy").paginate(
        PolicySourceArn=principal(iam, account.caller), ActionNames=sorted(needed)
    )
    decisions = {
        result["EvalActionName"]: result["EvalDecision"]
        for page in pages
        for result in page["EvaluationResults"]
    }
    for action in sorted(needed):
        if decisions.get(action) == "explicitDeny":
            advice = "use another role, or remove the denial"
            yield CheckResult(action, "failure", "explicitly denied by a policy", advice)
        elif decisions.get(action) != "allowed":
            finding = "not allowed on all resources; permissions on named resources cannot be simulated"
            yield CheckResult(action, "warning", finding, f"allow it for {account.caller}")
    allowed = sum(decision == "allowed" for decision in decisions.values())
    yield CheckResult(account.caller, "ok", f"{allowed} of {len(needed)} actions of `up` are allowed")


def principal(iam: Any, caller: str) -> str:
    """Return the ARN that has the policies: for a session of an assumed role that of the role."""
    if ":assumed-role/" not in caller:
        return caller
    role = caller.split("/")[1]
    return str(iam.get_role(RoleName=role)["Role"]["Arn"])


def service_roles(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Check each role that the stack's groups need."""
    for missing in _needed(stack):
        exists = has_role(account, missing.subject)
        yield CheckResult(missing.subject, "ok", "exists") if exists else missing


def _needed(stack: Stack) -> Iterator[CheckResult]:
    """Yield the result for each needed role if it does not exist."""
    for type_, (role, first) in _CREATED_BY_AWS.items():
        if stack.has(type_):
            finding = f"does not exist yet; AWS creates it with the first {first}"
            advice = f"allow iam:CreateServiceLinkedRole for who creates the {first}"
            yield CheckResult(role, "warning", finding, advice)
    if any(capacity.spot_percentage > 0 for capacity in stack.capacities.values()):
        yield _missing_spot_role("AWSServiceRoleForEC2Spot", "spot.amazonaws.com")
    if stack.has("aws:ec2/spotFleetRequest:SpotFleetRequest"):
        yield _missing_spot_role("AWSServiceRoleForEC2SpotFleet", "spotfleet.amazonaws.com")


def _missing_spot_role(role: str, service: str) -> CheckResult:
    advice = f"aws iam create-service-linked-role --aws-service-name {service}"
    return CheckResult(role, "failure", "does not exist: Spot requests are rejected", advice)


def has_role(account: Account, name: str) -> bool:
    """Return whether the account has a role."""
    try:
        account.clients("iam").get_role(RoleName=name)
    except ClientError as error:
        if error_code(error) != "NoSuchEntity":
            raise
        return False
    return True
