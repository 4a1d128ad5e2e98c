"""The age of the images that instances run, as ``gpu-spot status`` says it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import boto3

from gpu_spot.status.images import OLD_SECONDS, RunningImage, count_images, read_images
from gpu_spot.status.snapshot import DeclaredEntries, GroupSnapshot, StackSnapshot
from gpu_spot.status.text import _images
from tests import models

NOW = 1_800_000_000.0


def test_images_are_counted_by_group_and_a_deregistered_one_has_no_age() -> None:
    with models.moto():
        ec2: Any = boto3.client("ec2", "us-west-2", aws_access_key_id="a", aws_secret_access_key="b")
        base = ec2.describe_images()["Images"][0]["ImageId"]
        images = [_made(ec2, base, name) for name in ("kept", "gone")]
        ours = [_launched(ec2, image, "prod") for image in (images[0], *images)]
        other = _launched(ec2, images[0], "prod-2")
        ec2.deregister_image(ImageId=images[1])
        found = read_images(ec2, "prod")
        shown = ec2.describe_images(ImageIds=images[:1])["Images"][0]["CreationDate"]
    created_at = datetime.fromisoformat(shown).timestamp()
    kept, gone = RunningImage(images[0], created_at, 2), RunningImage(images[1], None, 1)
    assert found.keys() == {*ours}
    assert count_images(found, [*ours, other]) == (gone, kept)


def test_an_old_image_is_a_warning() -> None:
    images = (
        RunningImage("ami-0", None, 1),
        RunningImage("ami-1", NOW - OLD_SECONDS - 86_400, 2),
        RunningImage("ami-2", NOW - 86_400, 1),
    )
    groups = (GroupSnapshot("ocr", images=images), GroupSnapshot("unread"))
    lines = list(
        _images(StackSnapshot("prod", "us-west-2", NOW, (), groups, (), (), DeclaredEntries({}, ()), 0))
    )
    assert [(line.plain, str(line.style)) for line in lines] == [
        ("ocr: ami-0 on 1 instance: deregistered, age unknown", "yellow"),
        ("ocr: ami-1 on 2 instances: 91 days old", "yellow"),
        ("ocr: ami-2 on 1 instance: 1 days old", "dim"),
    ]


def _made(ec2: Any, base: str, name: str) -> str:
    [instance] = ec2.run_instances(ImageId=base, MinCount=1, MaxCount=1)["Instances"]
    return str(ec2.create_image(InstanceId=instance["InstanceId"], Name=name)["ImageId"])


def _launched(ec2: Any, image: str, stack: str) -> str:
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "gpu-spot:stack", "Value": stack}]}]
    launched = ec2.run_instances(ImageId=image, MinCount=1, MaxCount=1, TagSpecifications=tags)
    return str(launched["Instances"][0]["InstanceId"])
