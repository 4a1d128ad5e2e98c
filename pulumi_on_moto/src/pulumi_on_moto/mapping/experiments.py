"""Experiment templates of AWS Fault Injection Service."""

from __future__ import annotations

from typing import Any

from pulumi_on_moto.mapping.base import ResourceRequest, Spec, output_paths


def _template(draft: ResourceRequest) -> None:
    """Convert Pulumi's lists of targets, actions, parameters and target tags to AWS's mappings."""
    draft.put(
        clientToken=draft.urn[-64:].replace(" ", "-"),
        targets={item.pop("name"): _target(draft, item) for item in map(dict, draft.take("targets") or [])},
        actions={item.pop("name"): _action(draft, item) for item in map(dict, draft.need("actions"))},
    )


def _target(draft: ResourceRequest, values: dict[str, Any]) -> Any:
    tags = {tag["key"]: tag["value"] for tag in values.pop("resourceTags", None) or []}
    if tags:
        values["resourceTags"] = tags
    return draft.matched("fis", "CreateExperimentTemplate", values, "targets", "targets", "{}")


def _action(draft: ResourceRequest, values: dict[str, Any]) -> Any:
    values["parameters"] = {
        parameter["key"]: parameter["value"] for parameter in values.pop("parameters", None) or []
    }
    target = values.pop("target", None)
    if target:
        values["targets"] = {target["key"]: target["value"]}
    return draft.matched("fis", "CreateExperimentTemplate", values, "actions", "actions", "{}")


SPECS: dict[str, Spec] = {
    "aws:fis/experimentTemplate:ExperimentTemplate": Spec(
        "fis.create_experiment_template",
        "experimentTemplate.id",
        tags="map",
        shape=_template,
        outputs=output_paths(arn="experimentTemplate.arn"),
    ),
}
