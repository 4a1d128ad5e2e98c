"""Validation of images, warm pools, requirements and weights by Auto Scaling, which moto lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import AutoScalingBackend

from pulumi_on_moto.fixes import Patches, around

MOST_REQUIREMENTS: Final = 4
"""Maximum number of sets of instance requirements in a group (API reference, ``LaunchTemplateOverrides``)."""

PARAMETER: Final = "resolve:ssm:"
_WEIGHTS: Final = range(1, 1000)
"""Valid weights (same page)."""


def check_weights(overrides: Sequence[Mapping[str, Any]]) -> str | None:
    """Return Auto Scaling's error for the weights of these overrides, None if they are valid."""
    weights = [override["WeightedCapacity"] for override in overrides if "WeightedCapacity" in override]
    if weights and len(weights) < len(overrides):
        return f"all overrides or none must have a WeightedCapacity, not {len(weights)} of {len(overrides)}"
    wrong = [item for item in weights if not (str(item).isdecimal() and int(item) in _WEIGHTS)]
    return f"WeightedCapacity must be from 1 to {_WEIGHTS[-1]}, not {wrong[0]}" if wrong else None


def check_requirements(sets: int, images: Iterable[str]) -> str | None:
    """Return Auto Scaling's error for a group's sets of instance requirements, None if they are valid.

    ``images`` are those of the group's launch templates.
    """
    if sets > MOST_REQUIREMENTS:
        return f"there must be at most {MOST_REQUIREMENTS} sets of InstanceRequirements, not {sets}"
    named = next((image for image in images if image.startswith(PARAMETER)), None)
    # The text: terraform-provider-aws#38767. The rule: Auto Scaling user guide, "Use AWS Systems Manager
    # parameters instead of AMI IDs in launch templates", limitations.
    return f'Invalid id: "{named}" (expecting "ami-...")' if sets and named is not None else None


def _create(create: Callable[..., Any], backend: AutoScalingBackend, *args: Any, **kwargs: Any) -> Any:
    policy: Mapping[str, Any] = kwargs.get("mixed_instances_policy") or {}
    overrides = policy.get("LaunchTemplate", {}).get("Overrides") or []
    sets = sum("InstanceRequirements" in override for override in overrides)
    if problem := check_weights(overrides) or check_requirements(sets, _images(backend, policy)):
        raise ValidationError(problem)
    return create(backend, *args, **kwargs)


def _put_warm_pool(
    put: Callable[..., None], backend: AutoScalingBackend, group_name: str, *args: Any, **kwargs: Any
) -> None:
    group = backend.autoscaling_groups[group_name]
    policy = group.mixed_instances_policy
    if not policy:
        policy = {"LaunchTemplate": {"LaunchTemplateSpecification": group.launch_template}}
    for image in _images(backend, policy):
        if image.startswith(PARAMETER):
            raise ValidationError(
                f"a warm pool behind a launch template whose image is {image} is not supported"
            )
    put(backend, group_name, *args, **kwargs)


def _images(backend: AutoScalingBackend, policy: Mapping[str, Any]) -> Iterator[str]:
    """Yield the images of a policy's launch templates."""
    template = policy.get("LaunchTemplate", {})
    named = [template.get("LaunchTemplateSpecification")]
    named += [override.get("LaunchTemplateSpecification") for override in template.get("Overrides") or []]
    for specification in filter(None, named):
        yield _image(backend.ec2_backend, specification)


def _image(ec2: Any, specification: Mapping[str, Any]) -> str:
    """Return the image of a version of a launch template, as written there; empty for none."""
    if specification.get("LaunchTemplateId"):
        template = ec2.get_launch_template(specification["LaunchTemplateId"])
    else:
        template = ec2.get_launch_template_by_name(specification["LaunchTemplateName"])
    version = template.get_version(specification.get("Version") or "$Default")
    return str(version.image_id)


PATCHES: Final[Patches] = (
    around(AutoScalingBackend, "create_auto_scaling_group", _create),
    around(AutoScalingBackend, "put_warm_pool", _put_warm_pool),
)
