"""Secrets of Secrets Manager."""

from __future__ import annotations

from typing import Any

from pulumi_on_moto.mapping.base import Draft, Made, Spec, found


def _secret_outputs(made: Made) -> dict[str, Any]:
    return {"arn": made.id}


def _version(draft: Draft) -> None:
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
        lambda made: f"{made.find('ARN')}|{made.find('VersionId')}",
        shape=_version,
        outputs=found(arn="ARN", versionId="VersionId"),
    ),
}
