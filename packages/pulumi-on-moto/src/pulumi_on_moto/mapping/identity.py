"""Identity: roles, policies, instance profiles, the roles of a cluster's pods; secrets."""

from __future__ import annotations

from pulumi_on_moto.mapping.base import CreatedResource, Spec, json_text, output_paths


def _role_policies(resource: CreatedResource) -> None:
    iam = resource.clients("iam")
    for arn in resource.inputs.get("managedPolicyArns") or []:
        iam.attach_role_policy(RoleName=resource.id, PolicyArn=arn)
    for policy in resource.inputs.get("inlinePolicies") or []:
        iam.put_role_policy(
            RoleName=resource.id, PolicyName=policy["name"], PolicyDocument=json_text(policy["policy"])
        )


def _profile_role(resource: CreatedResource) -> None:
    role = resource.inputs.get("role")
    if role:
        resource.clients("iam").add_role_to_instance_profile(InstanceProfileName=resource.id, RoleName=role)


SPECS: dict[str, Spec] = {
    "aws:iam/role:Role": Spec(
        "iam.create_role",
        "=RoleName",
        rename={"name": "RoleName", "assumeRolePolicy": "AssumeRolePolicyDocument"},
        autoname="name",
        after=_role_policies,
        takes={"managedPolicyArns", "inlinePolicies"},
        outputs=output_paths(arn="Role.Arn", uniqueId="Role.RoleId"),
        no_effect={"forceDetachPolicies": "nothing is ever deleted here"},
    ),
    "aws:iam/rolePolicy:RolePolicy": Spec(
        "iam.put_role_policy",
        lambda resource: f"{resource.params['RoleName']}:{resource.params['PolicyName']}",
        rename={"name": "PolicyName", "role": "RoleName", "policy": "PolicyDocument"},
        autoname="name",
    ),
    "aws:iam/policy:Policy": Spec(
        "iam.create_policy",
        "Policy.Arn",
        rename={"name": "PolicyName", "policy": "PolicyDocument"},
        autoname="name",
        outputs=output_paths(arn="Policy.Arn", policyId="Policy.PolicyId"),
    ),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": Spec(
        "iam.attach_role_policy",
        lambda resource: f"{resource.params['RoleName']}/{resource.params['PolicyArn']}",
        rename={"role": "RoleName"},
    ),
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider": Spec(
        "iam.create_open_id_connect_provider",
        "OpenIDConnectProviderArn",
        rename={"clientIdLists": "ClientIDList"},
        outputs=lambda resource: {"arn": resource.id},
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": Spec(
        "eks.create_pod_identity_association",
        "association.associationId",
        outputs=output_paths(
            associationArn="association.associationArn", associationId="association.associationId"
        ),
        no_effect={"disableSessionTags": "no role is assumed here"},
    ),
    "aws:iam/instanceProfile:InstanceProfile": Spec(
        "iam.create_instance_profile",
        "=InstanceProfileName",
        rename={"name": "InstanceProfileName"},
        autoname="name",
        after=_profile_role,
        takes={"role"},
        outputs=output_paths(arn="InstanceProfile.Arn", uniqueId="InstanceProfile.InstanceProfileId"),
    ),
    "aws:secretsmanager/secret:Secret": Spec(
        "secretsmanager.create_secret",
        "ARN",
        autoname="name",
        outputs=output_paths(arn="ARN"),
        no_effect={"recoveryWindowInDays": "nothing is ever deleted here"},
    ),
    "aws:secretsmanager/secretVersion:SecretVersion": Spec(
        "secretsmanager.put_secret_value",
        lambda resource: f"{resource.find('ARN')}|{resource.find('VersionId')}",
        outputs=output_paths(arn="ARN", versionId="VersionId"),
    ),
}
