"""Every call that the agent's adapters make is granted, and nothing more."""

from __future__ import annotations

import ast
from pathlib import Path

from userdata.agent import permissions

AGENT = Path(permissions.__file__).parent
# boto3's names → IAM's, where they differ: S3's download is GetObject, its listing ListBucket.
S3 = {"download_file": "s3:GetObject", "list_objects_v2": "s3:ListBucket"}
SERVICES = {
    "update_item": "dynamodb",
    "delete_item": "dynamodb",
    "get_item": "dynamodb",
    "put_parameter": "ssm",
    "complete_lifecycle_action": "autoscaling",
    "get_authorization_token": "ecr",
    "describe_volumes": "ec2",
    "describe_snapshots": "ec2",
    "create_volume": "ec2",
    "create_snapshot": "ec2",
    "create_tags": "ec2",
    "attach_volume": "ec2",
    "detach_volume": "ec2",
    "delete_volume": "ec2",
    "delete_snapshot": "ec2",
}


def calls_in_code() -> set[str]:
    """Collect the API operations: method calls on clients, and names handed to ``_call`` and its like."""
    found: set[str] = set()
    for path in AGENT.rglob("*.py"):
        if path.name == "permissions.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and "client" in ast.dump(node.value).lower():
                found.add(node.attr)
            if isinstance(node, ast.Attribute) and node.attr in {*SERVICES, *S3}:
                found.add(node.attr)
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and node.value in {*SERVICES, *S3}
            ):
                found.add(node.value)
    return found


def test_actions_are_exactly_the_calls() -> None:
    calls = calls_in_code()
    unknown = calls & client_operations() - {*SERVICES, *S3}
    assert unknown == set(), "an API operation that this test does not know: add it, and its permission"
    used = {SERVICES[c] + ":" + "".join(w.title() for w in c.split("_")) for c in calls if c in SERVICES}
    used |= {S3[c] for c in calls if c in S3}
    granted = {a for s in permissions.STATEMENTS for a in s.actions} - permissions.BY_DOCKER
    assert granted == used


def client_operations() -> set[str]:
    import boto3

    services = ("autoscaling", "dynamodb", "ec2", "ecr", "s3", "ssm", "cloudwatch", "sts")
    clients = [
        boto3.client(s, region_name="us-west-2", aws_access_key_id="a", aws_secret_access_key="b")  # type: ignore[call-overload]
        for s in services
    ]
    return {operation for client in clients for operation in client.meta.method_to_api_mapping}


def test_only_what_aws_cannot_narrow_is_granted_on_everything() -> None:
    wide = {a for s in permissions.STATEMENTS for a in s.actions if s.resources == ("*",)}
    assert wide == {"ec2:DescribeVolumes", "ec2:DescribeSnapshots", "ecr:GetAuthorizationToken"}
    for statement in permissions.STATEMENTS:
        assert not any("*" in action for action in statement.actions)
        if any(r.endswith(("volume/*", "snapshot/*", "instance/*")) for r in statement.resources):
            assert statement.conditions, f"{statement.actions} on any volume needs a condition on tags"
