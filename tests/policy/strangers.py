"""Mistakes that let others in: other accounts, any job, whoever meets a condition."""

from __future__ import annotations

import json
from typing import Any, Final

from policy.rules.model import Subject
from tests.policy.cases import FOREIGN, OWN, TAGS, Form, allowing, subject

_FOREIGN: Final = f"arn:aws:iam::{FOREIGN}:role/x"
_HOLES: Final[tuple[dict[str, Any], ...]] = (
    {"StringEqualsIfExists": {"aws:PrincipalAccount": OWN}},
    {"ForAllValues:StringEquals": {"aws:PrincipalOrgID": "o-1234567890"}},
    {"StringNotEquals": {"aws:PrincipalAccount": "111111111111"}},
    {"StringNotLike": {"aws:PrincipalArn": "arn:aws:iam::111111111111:*"}},
    {"ArnNotLike": {"aws:SourceArn": "arn:aws:s3:::data"}},
    {"NotIpAddress": {"aws:SourceIp": "192.0.2.0/24"}},
    {"Null": {"aws:SourceArn": "false"}},
    {"StringLike": {"aws:PrincipalArn": "arn:aws:iam::*:role/*"}},
    {"ArnLike": {"aws:SourceArn": "arn:aws:sns:*:*:*"}},
    {"StringLike": {"aws:PrincipalAccount": "*"}},
    {"StringLike": {"aws:PrincipalOrgID": "o-*"}},
    {"StringLike": {"aws:userid": "*:session"}},
    {"IpAddress": {"aws:SourceIp": ["10.0.0.0/8", "0.0.0.0/1"]}},
    {"IpAddress": {"aws:SourceIp": [f"{n}.0.0.0/8" for n in range(11, 200)]}},
    {"IpAddress": {"aws:VpcSourceIp": "10.0.0.0/8"}},
    {"IpAddress": {"aws:SourceIp": "2000::/3"}},
    {"StringEquals": {"aws:PrincipalAccount": [OWN, "*"]}},
    {"Bool": {"aws:SecureTransport": "true"}},
    {"DateLessThan": {"aws:CurrentTime": "2030-01-01T00:00:00Z"}},
    {"StringEquals": {"aws:RequestedRegion": "us-west-2"}},
)
"""Conditions that an anonymous caller or a foreign account meets."""


def _conditions_with_holes() -> list[Form]:
    kinds = ("QueuePolicy", "BucketPolicy")
    return [
        (
            "no-wildcards",
            [allowing(kind, Principal="*", Action="sqs:SendMessage", Resource="*", Condition=hole)],
        )
        for kind in kinds
        for hole in _HOLES
    ]


def _wild_after_the_type() -> list[Form]:
    pairs = (
        ("secretsmanager:GetSecretValue", "arn:aws:secretsmanager:us-west-2:123456789012:secret:*"),
        ("iam:PassRole", "arn:aws:iam::123456789012:role/service-role/*"),
        ("iam:PassRole", "arn:aws:iam::123456789012:role/*"),
        ("ssm:GetParameter", "arn:aws:ssm:*:123456789012:parameter/*"),
        ("dynamodb:GetItem", "arn:aws:dynamodb:us-west-2:123456789012:table/*"),
        ("lambda:InvokeFunction", "arn:aws:lambda:us-west-2:123456789012:function:*"),
        ("kms:Decrypt", "arn:aws:kms:us-west-2:123456789012:key/*"),
        ("logs:GetLogEvents", "arn:aws:logs:*:*:log-group:*"),
        ("s3:GetObject", "arn:aws:s3:::*/*"),
        ("s3:GetObject", "arn:aws:s3:::*"),
        ("ec2:TerminateInstances", "arn:aws:ec2:us-west-2:123456789012:instance/*"),
        ("ec2:DeleteVolume", "arn:aws:ec2:*:*:volume/*"),
        ("ssm:StartSession", "arn:aws:ec2:us-west-2:123456789012:instance/*"),
        ("ec2:AuthorizeSecurityGroupIngress", "arn:aws:ec2:us-west-2:123456789012:security-group/*"),
        ("iam:PassRole", "arn:aws:iam::123456789012:role/*-*"),
        ("rds:DeleteDBInstance", "arn:aws:rds:us-west-2:123456789012:db:*"),
        ("dynamodb:GetItem", "arn:aws:dynamodb:us-west-2:123456789012:table/*/index/*"),
    )
    hole = {"StringEqualsIfExists": {"aws:ResourceTag/gpu-spot:stack": "prod"}}
    conditions: tuple[Any, ...] = (None, hole)
    return [
        ("no-wildcards", [allowing(Action=action, Resource=arn, **({"Condition": c} if c else {}))])
        for action, arn in pairs
        for c in conditions
    ]


def _trusts_of_any_job() -> list[Form]:
    github, cluster = "token.actions.githubusercontent.com", "oidc.eks.us-west-2.amazonaws.com/id/ABC"
    conditions: tuple[Any, ...] = (
        None,
        {"StringEquals": {f"{github}:aud": "sts.amazonaws.com"}},
        *({"StringLike": {f"{github}:sub": value}} for value in ("*", "repo:acme/*", "repo:acme/models:*")),
        {"StringLike": {f"{github}:sub": "repo:acme@*/models@*:environment:production"}},
        {"StringEqualsIfExists": {f"{github}:sub": "repo:acme/models:ref:refs/heads/main"}},
        {"ForAllValues:StringEquals": {f"{github}:sub": ["repo:acme/models:ref:refs/heads/main"]}},
        {"StringNotEquals": {f"{github}:sub": "repo:evil/models:ref:refs/heads/main"}},
        {"StringEquals": {f"{github}:repository_owner": "acme"}},
        {"StringLike": {f"{cluster}:sub": "system:serviceaccount:*:*"}},
        {"StringEquals": {f"{cluster}:aud": "sts.amazonaws.com"}},
    )

    def role(condition: Any) -> Subject:
        provider = {"Federated": f"arn:aws:iam::{OWN}:oidc-provider/{github}"}
        statement = {"Effect": "Allow", "Principal": provider, "Action": "sts:AssumeRoleWithWebIdentity"}
        statement |= {"Condition": condition} if condition else {}
        return subject("Role", assumeRolePolicy=json.dumps({"Statement": [statement]}), tags=TAGS)

    return [("no-wildcards", [role(condition)]) for condition in conditions]


def _any_account() -> list[Form]:
    principals: tuple[Any, ...] = (
        "*",
        {"AWS": "*"},
        {"AWS": "arn:aws:iam::*:root"},
        {"AWS": [_FOREIGN, "*"]},
    )
    documents = [{"Effect": "Allow", "Principal": p, "Action": "sts:AssumeRole"} for p in principals]
    roles = [subject("Role", assumeRolePolicy=json.dumps({"Statement": d}), tags=TAGS) for d in documents]
    points = [allowing("AccessPoint", Principal=p, Action="s3:GetObject", Resource="*") for p in principals]
    negated = [
        allowing(kind, NotPrincipal={"AWS": _FOREIGN}, Action="sqs:SendMessage", Resource="*")
        for kind in ("QueuePolicy", "TopicPolicy", "BucketPolicy", "SecretPolicy")
    ]
    return [("no-wildcards", [each]) for each in (*roles, *points, *negated)]


def _accounts_of_others() -> list[Form]:
    """In principals, conditions, trusts, resources, and in what is shared by itself."""
    root, organization = f"arn:aws:iam::{FOREIGN}:root", "o-abcdefghij"
    principals: tuple[Any, ...] = (
        *(FOREIGN, root, [OWN, FOREIGN], f"arn:aws:sts::{FOREIGN}:assumed-role/a/b", "AROAEXAMPLEID12345678"),
        "arn:aws:iam::cloudfront:user/CloudFront Origin Access Identity EABC",
    )
    kinds = ("QueuePolicy", "BucketPolicy", "RepositoryPolicy", "Key", "SecretPolicy", "FileSystemPolicy")
    send = {"Action": "sqs:SendMessage", "Resource": "*"}
    conditions: tuple[Any, ...] = (
        *({key: FOREIGN} for key in ("aws:SourceAccount", "aws:PrincipalAccount", "kms:CallerAccount")),
        {"aws:PrincipalOrgID": organization},
        {"aws:PrincipalArn": [f"arn:aws:iam::{OWN}:root", root]},
        {"aws:userid": "AROAEXAMPLEID12345678:session"},
    )
    trusts = ({"AWS": root}, {"Federated": f"arn:aws:iam::{FOREIGN}:saml-provider/a"})
    reached = (
        ("sts:AssumeRole", _FOREIGN),
        ("sts:AssumeRole", "arn:aws:iam::*:role/deploy"),
        ("sqs:SendMessage", f"arn:aws:sqs:us-west-2:{FOREIGN}:a"),
        ("ecr:PutImage", f"arn:aws:ecr:us-west-2:{FOREIGN}:repository/a"),
    )
    grantee = {"grants": [{"grantee": {"id": "7" * 64}}]}
    shared: tuple[tuple[str, dict[str, Any]], ...] = (
        ("AmiLaunchPermission", {"accountId": FOREIGN}),
        ("AccessEntry", {"principalArn": _FOREIGN}),
        ("BucketAcl", {"accessControlPolicy": grantee}),
        ("Document", {"permissions": {"type": "Share", "accountIds": f"{OWN},{FOREIGN}"}}),
        ("Grant", {"granteePrincipal": _FOREIGN}),
        ("Permission", {"principal": FOREIGN}),
        ("Permission", {"principal": "*", "principalOrgId": organization}),
        ("PrincipalAssociation", {"principal": FOREIGN}),
        ("SecurityGroupIngressRule", {"referencedSecurityGroupId": f"{FOREIGN}/sg-1"}),
        ("TopicSubscription", {"endpoint": f"arn:aws:sqs:us-west-2:{FOREIGN}:a"}),
    )
    programs = [
        *(allowing(kind, Principal={"AWS": one}, **send) for kind in kinds for one in principals),
        *(allowing(Principal="*", **send, Condition={"StringEquals": one}) for one in conditions),
        *(subject("Role", assumeRolePolicy={"Statement": {"Principal": one}}) for one in trusts),
        *(allowing(Action=action, Resource=resource) for action, resource in reached),
        *(subject(kind, **inputs) for kind, inputs in shared),
    ]
    return [("foreign-accounts", [each]) for each in programs]


def _services_for_anybody() -> list[Form]:
    holes: tuple[Any, ...] = (
        *({}, {"StringEqualsIfExists": {"aws:SourceAccount": OWN}}),
        {"ArnLike": {"aws:SourceArn": "arn:aws:sns:*:*:alarms"}},
    )
    services = ("sns.amazonaws.com", ["events.amazonaws.com"], "s3.amazonaws.com")
    return [
        ("no-wildcards", [allowing(kind, Principal={"Service": one}, Action="sqs:A", Condition=hole)])
        for kind in ("QueuePolicy", "TopicPolicy")
        for one in services
        for hole in holes
    ]


STRANGERS: Final = {
    "conditions that a stranger meets": _conditions_with_holes(),
    "wild after the type": _wild_after_the_type(),
    "trust in any job": _trusts_of_any_job(),
    "any account": _any_account(),
    "accounts of others": _accounts_of_others(),
    "services for anybody": _services_for_anybody(),
}
