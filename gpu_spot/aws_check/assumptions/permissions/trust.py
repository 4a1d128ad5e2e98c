"""Trust policies of this stack's roles, and what S3 says to a caller without permission to list."""

from __future__ import annotations

from typing import Any, Final

from botocore.exceptions import ClientError

from gpu_spot.aws_check import roles
from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.aws_test_bed import AwsTestBed, Falsified
from gpu_spot.preflight.account import ClientOf

_STATE: Final = "infra/iam/preview_statements.py"
_S3: Final = 'S3 API reference, GetObject, "Permissions"'
_SERVICES: Final = (
    "ec2.amazonaws.com",
    "eks.amazonaws.com",
    "fis.amazonaws.com",
    "lambda.amazonaws.com",
    "spotfleet.amazonaws.com",
    "vpc-flow-logs.amazonaws.com",
)


@assumes(
    'EKS guide, "Create IAM role with trust policy required by EKS Pod Identity"',
    "infra/iam/kubernetes_statements.py",
    "CreateRole is rejected",
)
def trust_in_pods(test_bed: AwsTestBed) -> str:
    """IAM accepts trust in pods.eks.amazonaws.com with TagSession and conditions on request tags."""
    tags = {"aws:RequestTag/kubernetes-namespace": "ns", "aws:SourceAccount": test_bed.account.id}
    trusted = roles.trust("pods.eks.amazonaws.com", {"StringEquals": tags}, "sts:TagSession")
    return roles.create_role(test_bed, "pods", trusted)


@assumes(
    'IAM Roles Anywhere user guide, "Attribute mapping and trust policy"',
    "infra/iam/instance_statements.py",
    "CreateRole is rejected",
)
def trust_in_certificates(test_bed: AwsTestBed) -> str:
    """IAM accepts trust in Roles Anywhere with a condition on the subject's common name as a session tag."""
    condition = {"StringEquals": {"aws:PrincipalTag/x509Subject/CN": "host"}}
    trusted = roles.trust("rolesanywhere.amazonaws.com", condition, "sts:SetSourceIdentity", "sts:TagSession")
    return roles.create_role(test_bed, "certificates", trusted)


@assumes(
    "IAM API reference, CreateOpenIDConnectProvider, ThumbprintList",
    "infra/components/identity/previews.py",
    "it is rejected without a thumbprint",
)
def provider_without_thumbprint(test_bed: AwsTestBed) -> str:
    """An OpenID Connect provider can be created without a thumbprint."""
    iam = test_bed.clients("iam")
    url = f"https://token.actions.githubusercontent.com/{test_bed.resource_name('issuer')}"
    response = test_bed.expect_success(
        lambda: iam.create_open_id_connect_provider(
            Url=url, ClientIDList=["sts.amazonaws.com"], Tags=test_bed.tags
        )
    )
    iam.delete_open_id_connect_provider(OpenIDConnectProviderArn=response["OpenIDConnectProviderArn"])
    return "created and deleted"


@assumes(
    "aws-cdk, region-info/lib/default.ts; no page of AWS lists them for every partition",
    "contracts/partitions.py",
    "CreateRole is rejected for one of them",
)
def service_principals(test_bed: AwsTestBed) -> str:
    """The region's partition accepts <service>.amazonaws.com as the principal of each service."""
    for service in _SERVICES:
        roles.create_role(test_bed, service.partition(".")[0], roles.trust(service))
    return f"{len(_SERVICES)} principals in {test_bed.partition}"


def _bucket(test_bed: AwsTestBed, suffix: str) -> str:
    name, region = test_bed.resource_name(suffix).lower(), test_bed.region
    location: dict[str, Any] = {"LocationConstraint": region}
    options = {} if region == "us-east-1" else {"CreateBucketConfiguration": location}
    test_bed.clients("s3").create_bucket(Bucket=name, **options)
    return name


def _reader(test_bed: AwsTestBed, suffix: str, bucket: str, *, may_list: bool) -> ClientOf:
    arn = f"arn:{test_bed.partition}:s3:::{bucket}"
    statements = [{"Action": "s3:GetObject", "Resource": f"{arn}/*"}]
    statements += [{"Action": "s3:ListBucket", "Resource": arn}] if may_list else []
    return roles.acting(test_bed, suffix, statements)


def _code_of_a_missing_object(test_bed: AwsTestBed, suffix: str, *, may_list: bool) -> str:
    bucket = _bucket(test_bed, suffix)
    client = _reader(test_bed, suffix, bucket, may_list=may_list)("s3")
    try:
        client.get_object(Bucket=bucket, Key="missing")
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    raise Falsified("an object that does not exist was returned")


@assumes(_S3, _STATE, "another error: a preview ends if a key is missing")
def missing_object(test_bed: AwsTestBed) -> str:
    """GetObject of a missing key is NoSuchKey for a caller who may list the bucket."""
    code = _code_of_a_missing_object(test_bed, "listing", may_list=True)
    if code != "NoSuchKey":
        raise Falsified(f"it is {code}")
    return code


@assumes(_S3, "docs/adr/0060-a-state-bucket-for-each-stack.md", "NoSuchKey: permission to list is not needed")
def missing_object_without_list(test_bed: AwsTestBed) -> str:
    """GetObject of a missing key is AccessDenied for a caller who may not list the bucket."""
    code = _code_of_a_missing_object(test_bed, "blind", may_list=False)
    if code != "AccessDenied":
        raise Falsified(f"it is {code}")
    return code
