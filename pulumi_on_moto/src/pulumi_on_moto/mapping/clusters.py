"""EKS: clusters, node groups, add-ons, access entries; keys of KMS, under which secrets lie."""

from __future__ import annotations

from typing import Any, Final

from pulumi_on_moto.mapping.base import Draft, Made, Spec, found, json_text

_WAITS: Final = "nothing to wait for or to delete here"
_LOGS: Final = ("api", "audit", "authenticator", "controllerManager", "scheduler")


def _cluster(draft: Draft) -> None:
    on = draft.take("enabledClusterLogTypes") or []
    types = [{"types": sorted(on), "enabled": True}] if on else []
    off = sorted({*_LOGS} - {*on})
    draft.put(logging={"clusterLogging": [*types, *([{"types": off, "enabled": False}] if off else [])]})
    if encryption := draft.take("encryptionConfig"):
        draft.put(encryptionConfig=[encryption])


def _cluster_outputs(made: Made) -> dict[str, Any]:
    cluster = made.clients("eks").describe_cluster(name=made.id)["cluster"]
    return {
        "arn": cluster["arn"],
        "endpoint": cluster["endpoint"],
        "version": cluster["version"],
        "status": cluster["status"],
        "certificateAuthority": {"data": cluster["certificateAuthority"]["data"]},
    }


def _key_extras(made: Made) -> None:
    tags = {**(made.inputs.get("tagsAll") or {}), **(made.inputs.get("tags") or {})}
    if tags:
        told = [{"TagKey": key, "TagValue": value} for key, value in tags.items()]
        made.clients("kms").tag_resource(KeyId=made.id, Tags=told)
    if made.inputs.get("enableKeyRotation"):
        made.clients("kms").enable_key_rotation(KeyId=made.id)


def _key(draft: Draft) -> None:
    if policy := draft.take("policy"):
        draft.put(Policy=json_text(policy))


SPECS: dict[str, Spec] = {
    "aws:eks/cluster:Cluster": Spec(
        "eks.create_cluster",
        "=name",
        rename={"vpcConfig": "resourcesVpcConfig"},
        autoname="name",
        tags="map",
        shape=_cluster,
        outputs=_cluster_outputs,
    ),
    "aws:eks/nodeGroup:NodeGroup": Spec(
        "eks.create_nodegroup",
        lambda made: f"{made.params['clusterName']}:{made.params['nodegroupName']}",
        rename={"nodeGroupName": "nodegroupName", "nodeRoleArn": "nodeRole", "subnetIds": "subnets"},
        autoname="nodeGroupName",
        tags="map",
        outputs=found(arn="nodegroup.nodegroupArn", status="nodegroup.status"),
    ),
    "aws:eks/addon:Addon": Spec(
        "eks.create_addon",
        lambda made: f"{made.params['clusterName']}:{made.params['addonName']}",
        rename={"resolveConflictsOnCreate": "resolveConflicts"},
        tags="map",
        outputs=found(arn="addon.addonArn", addonVersion="addon.addonVersion"),
        no_effect={"resolveConflictsOnUpdate": "nothing is updated here", "preserve": _WAITS},
    ),
    "aws:eks/accessEntry:AccessEntry": Spec(
        "eks.create_access_entry",
        lambda made: f"{made.params['clusterName']}:{made.params['principalArn']}",
        tags="map",
        outputs=found(accessEntryArn="accessEntry.accessEntryArn"),
    ),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": Spec(
        "eks.associate_access_policy",
        lambda made: "#".join(made.params[key] for key in ("clusterName", "principalArn", "policyArn")),
    ),
    "aws:kms/key:Key": Spec(
        "kms.create_key",
        "KeyMetadata.KeyId",
        tags="after",
        shape=_key,
        after=_key_extras,
        takes=frozenset({"enableKeyRotation"}),
        outputs=found(arn="KeyMetadata.Arn", keyId="KeyMetadata.KeyId"),
        no_effect={"deletionWindowInDays": _WAITS},
    ),
}
