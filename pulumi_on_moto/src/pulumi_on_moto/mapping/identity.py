"""Identity: roles, policies, instance profiles, the roles of a cluster's pods."""

from __future__ import annotations

from pulumi_on_moto.mapping.base import Draft, Made, Spec, found, json_text


def _role(draft: Draft) -> None:
    draft.put(AssumeRolePolicyDocument=json_text(draft.need("assumeRolePolicy")))


def _role_policies(made: Made) -> None:
    iam = made.clients("iam")
    for arn in made.inputs.get("managedPolicyArns") or []:
        iam.attach_role_policy(RoleName=made.id, PolicyArn=arn)
    for policy in made.inputs.get("inlinePolicies") or []:
        iam.put_role_policy(
            RoleName=made.id, PolicyName=policy["name"], PolicyDocument=json_text(policy["policy"])
        )


def _inline_policy(draft: Draft) -> None:
    draft.put(PolicyDocument=json_text(draft.need("policy")), RoleName=draft.need("role"))


def _policy(draft: Draft) -> None:
    draft.put(PolicyDocument=json_text(draft.need("policy")))


def _profile_role(made: Made) -> None:
    role = made.inputs.get("role")
    if role:
        made.clients("iam").add_role_to_instance_profile(InstanceProfileName=made.id, RoleName=role)


SPECS: dict[str, Spec] = {
    "aws:iam/role:Role": Spec(
        "iam.create_role",
        "=RoleName",
        rename={"name": "RoleName"},
        autoname="name",
        tags="list",
        shape=_role,
        after=_role_policies,
        takes=frozenset({"managedPolicyArns", "inlinePolicies"}),
        outputs=found(arn="Role.Arn", uniqueId="Role.RoleId"),
        no_effect={"forceDetachPolicies": "nothing is ever deleted here"},
    ),
    "aws:iam/rolePolicy:RolePolicy": Spec(
        "iam.put_role_policy",
        lambda made: f"{made.params['RoleName']}:{made.params['PolicyName']}",
        rename={"name": "PolicyName"},
        autoname="name",
        shape=_inline_policy,
    ),
    "aws:iam/policy:Policy": Spec(
        "iam.create_policy",
        "Policy.Arn",
        rename={"name": "PolicyName"},
        autoname="name",
        tags="list",
        shape=_policy,
        outputs=found(arn="Policy.Arn", policyId="Policy.PolicyId"),
    ),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": Spec(
        "iam.attach_role_policy",
        lambda made: f"{made.params['RoleName']}/{made.params['PolicyArn']}",
        rename={"role": "RoleName"},
    ),
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider": Spec(
        "iam.create_open_id_connect_provider",
        "OpenIDConnectProviderArn",
        rename={"clientIdLists": "ClientIDList"},
        tags="list",
        outputs=lambda made: {"arn": made.id},
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": Spec(
        "eks.create_pod_identity_association",
        "association.associationId",
        tags="map",
        outputs=found(associationArn="association.associationArn", associationId="association.associationId"),
        no_effect={"disableSessionTags": "nobody assumes roles here"},
    ),
    "aws:iam/instanceProfile:InstanceProfile": Spec(
        "iam.create_instance_profile",
        "=InstanceProfileName",
        rename={"name": "InstanceProfileName"},
        autoname="name",
        tags="list",
        after=_profile_role,
        takes=frozenset({"role"}),
        outputs=found(arn="InstanceProfile.Arn", uniqueId="InstanceProfile.InstanceProfileId"),
    ),
}
