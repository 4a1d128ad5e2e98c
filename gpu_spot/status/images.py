"""Age of the images that a group's instances run: security patches come with new ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from contracts import names

OLD_SECONDS: Final = 90 * 86_400.0
"""Age from which `gpu-spot status` shows an image as a warning."""
_LAUNCHED: Final = ("pending", "running", "stopping", "stopped")


@dataclass(frozen=True, slots=True)
class RunningImage:
    """A machine image and the number of instances that run it.

    ``created_at`` is in epoch seconds, None of an image that its owner has deregistered.
    """

    image: str
    created_at: float | None
    count: int


def read_images(ec2: Any, stack: str) -> dict[str, RunningImage]:
    """Return the image of each instance of a stack: one call per 1,000 instances and per 100 images."""
    filters = [
        {"Name": f"tag:{names.TAG_STACK}", "Values": [stack]},
        {"Name": "instance-state-name", "Values": list(_LAUNCHED)},
    ]
    pages = ec2.get_paginator("describe_instances").paginate(Filters=filters)
    image_of = {
        instance["InstanceId"]: instance["ImageId"]
        for page in pages
        for reservation in page["Reservations"]
        for instance in reservation["Instances"]
    }
    images = sorted(set(image_of.values()))
    created: dict[str, float] = {}
    for start in range(0, len(images), 100):
        # A filter: the id of a deregistered image would be an error of the whole call.
        filters = [{"Name": "image-id", "Values": images[start : start + 100]}]
        listed = ec2.describe_images(Filters=filters, IncludeDeprecated=True)["Images"]
        created |= {i["ImageId"]: datetime.fromisoformat(i["CreationDate"]).timestamp() for i in listed}
    return {name: RunningImage(image, created.get(image), 1) for name, image in image_of.items()}


def count_images(
    by_instance: Mapping[str, RunningImage], instances: Collection[str]
) -> tuple[RunningImage, ...]:
    """Return the images of a group's ``instances``, the oldest first, those of unknown age before them."""
    counts = Counter(by_instance[name] for name in instances if name in by_instance)
    images = (RunningImage(image.image, image.created_at, count) for image, count in counts.items())
    return tuple(sorted(images, key=lambda image: (image.created_at or 0.0, image.image)))
