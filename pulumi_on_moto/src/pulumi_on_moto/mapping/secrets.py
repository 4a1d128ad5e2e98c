"""Secrets of AWS Secrets Manager."""

from __future__ import annotations

from typing import Any

from pulumi_on_moto.mapping.base import CreatedResource, ResourceRequest, Spec, output_paths


def _secret_outputs(resource: CreatedResource) -> dict[str, Any]:
    return {"arn": resource.id}


def _version(draft: ResourceRequest) -> None:
    if not {"secretString", "secretBinary"} & draft.inputs.keys():
        raise draft.fail("neither secretString nor secretBinary is given")


SPECS: dict[str, Spec] = {
    "aws:secretsmanager/secret:Secret": Spec(
        "secretsmanager.create_secret",
        "ARN",
        autoname="name",
        tags="list",
        outputs=_secret_outputs,
        no_effect={"recoveryWindowInDays": "nothing is ever deleted here"},
    ),
    "aws:secretsmanager/secretVersion:SecretVersion": Spec(
        "secretsmanager.put_secret_value",
        lambda resource: f"{resource.find('ARN')}|{resource.find('VersionId')}",
        shape=_version,
        outputs=output_paths(arn="ARN", versionId="VersionId"),
    ),
}
