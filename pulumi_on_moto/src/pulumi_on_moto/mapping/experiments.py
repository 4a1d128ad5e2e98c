"""Experiments of AWS Fault Injection Service: their templates."""

from __future__ import annotations

from typing import Any

from pulumi_on_moto.mapping.base import Draft, Spec, found


def _template(draft: Draft) -> None:
    """Name what Pulumi lists: AWS has targets, actions, parameters and tags of targets as mappings."""
    draft.put(
        clientToken=draft.urn[-64:].replace(" ", "-"),
        targets={one.pop("name"): _target(draft, one) for one in map(dict, draft.take("targets") or [])},
        actions={one.pop("name"): _action(draft, one) for one in map(dict, draft.need("actions"))},
    )


def _target(draft: Draft, given: dict[str, Any]) -> Any:
    tags = {one["key"]: one["value"] for one in given.pop("resourceTags", None) or []}
    if tags:
        given["resourceTags"] = tags
    return draft.matched("fis", "CreateExperimentTemplate", given, "targets", "targets", "{}")


def _action(draft: Draft, given: dict[str, Any]) -> Any:
    given["parameters"] = {one["key"]: one["value"] for one in given.pop("parameters", None) or []}
    target = given.pop("target", None)
    if target:
        given["targets"] = {target["key"]: target["value"]}
    return draft.matched("fis", "CreateExperimentTemplate", given, "actions", "actions", "{}")


SPECS: dict[str, Spec] = {
    "aws:fis/experimentTemplate:ExperimentTemplate": Spec(
        "fis.create_experiment_template",
        "experimentTemplate.id",
        tags="map",
        shape=_template,
        outputs=found(arn="experimentTemplate.arn"),
    ),
}
