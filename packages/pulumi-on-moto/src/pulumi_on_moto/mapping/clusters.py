"""EKS: clusters, node groups, add-ons, access entries; KMS keys for secrets."""

from __future__ import annotations

from typing import Any, Final

from pulumi_on_moto.mapping.base import CreatedResource, ResourceRequest, Spec, output_paths

_WAITS: Final = "nothing to wait for or to delete here"
_LOGS: Final = ("api", "audit", "authenticator", "controllerManager", "scheduler")


def _cluster(draft: ResourceRequest) -> None:
    enabled = {*(draft.take("enabledClusterLogTypes") or [])}
    logs = ((enabled, True), ({*_LOGS} - enabled, False))
    setup = [{"types": sorted(types), "enabled": is_enabled} for types, is_enabled in logs if types]
    draft.put(logging={"clusterLogging": setup})


def _cluster_outputs(resource: CreatedResource) -> dict[str, Any]:
    cluster = resource.clients("eks").describe_cluster(name=resource.id)["cluster"]
    return {
        **{key: cluster[key] for key in ("arn", "endpoint", "version", "status")},
        "certificateAuthority": {"data": cluster["certificateAuthority"]["data"]},
        "vpcConfig": {
            **resource.inputs["vpcConfig"],
            "clusterSecurityGroupId": cluster["resourcesVpcConfig"]["clusterSecurityGroupId"],
        },
    }


def _rotation(resource: CreatedResource) -> None:
    if resource.inputs.get("enableKeyRotation"):
        resource.clients("kms").enable_key_rotation(KeyId=resource.id)


SPECS: dict[str, Spec] = {
    "aws:eks/cluster:Cluster": Spec(
        "eks.create_cluster",
        "=name",
        rename={"vpcConfig": "resourcesVpcConfig"},
        autoname="name",
        shape=_cluster,
        outputs=_cluster_outputs,
    ),
    "aws:eks/nodeGroup:NodeGroup": Spec(
        "eks.create_nodegroup",
        lambda resource: f"{resource.params['clusterName']}:{resource.params['nodegroupName']}",
        rename={"nodeGroupName": "nodegroupName", "nodeRoleArn": "nodeRole", "subnetIds": "subnets"},
        autoname="nodeGroupName",
        outputs=output_paths(arn="nodegroup.nodegroupArn", status="nodegroup.status"),
    ),
    "aws:eks/addon:Addon": Spec(
        "eks.create_addon",
        lambda resource: f"{resource.params['clusterName']}:{resource.params['addonName']}",
        rename={"resolveConflictsOnCreate": "resolveConflicts"},
        outputs=output_paths(arn="addon.addonArn", addonVersion="addon.addonVersion"),
        no_effect={"resolveConflictsOnUpdate": "nothing is updated here", "preserve": _WAITS},
    ),
    "aws:eks/accessEntry:AccessEntry": Spec(
        "eks.create_access_entry",
        lambda resource: f"{resource.params['clusterName']}:{resource.params['principalArn']}",
        outputs=output_paths(accessEntryArn="accessEntry.accessEntryArn"),
    ),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": Spec(
        "eks.associate_access_policy",
        lambda resource: "#".join(
            resource.params[key] for key in ("clusterName", "principalArn", "policyArn")
        ),
    ),
    "aws:kms/key:Key": Spec(
        "kms.create_key",
        "KeyMetadata.KeyId",
        after=_rotation,
        takes={"enableKeyRotation"},
        outputs=output_paths(arn="KeyMetadata.Arn", keyId="KeyMetadata.KeyId"),
        no_effect={"deletionWindowInDays": _WAITS},
    ),
}
