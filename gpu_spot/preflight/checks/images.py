"""The machine images: that they are there, fit the types and the launch template, and what they bring.

Source: ``DescribeImages``; a root volume may not be smaller than its snapshot (EC2's
``InvalidBlockDeviceMapping``); Auto Scaling guide, "Use AWS Systems Manager parameters instead of AMI IDs in
launch templates": an own parameter has the data type ``aws:ec2:image``. That Ubuntu has ``python3`` and no
``python`` is from its packages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from botocore.exceptions import ClientError

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.remark import Remark
from gpu_spot.preflight.stack import Stack
from infra.schema import Capacity

NAME: Final = "machine images"

_AT_LAUNCH: Final = "resolve:ssm:"
_OF_AWS: Final = "/aws/service/"
_PYTHONS: Final = {
    "Ubuntu 22.04": "Python 3.10",
    "Ubuntu 24.04": "Python 3.12",
    "Amazon Linux 2023": "Python 3.9",
}


def look(stack: Stack, account: Account) -> Iterator[Remark]:
    """Look each group's images up and compare them with what will be launched from them."""
    root = _root_device(stack)
    commands = _commands(stack)
    for group, capacity in stack.settings.capacities.items():
        for image, types in capacity.images.items():
            subject = f"{group}: {image}"
            ami, problem = _resolved(stack, account, image)
            if problem is not None:
                yield Remark(subject, *problem)
            if ami is None:
                continue
            found = _described(account.clients("ec2"), ami)
            if found is None:
                advice = "name an image of this region that the account may use"
                yield Remark(subject, "failure", f"{ami} is not there", advice)
                continue
            yield from _fits(subject, found, capacity, types[0], root)
            yield from _brings(subject, found, commands.get(group, ()))


def _resolved(stack: Stack, account: Account, image: str) -> tuple[str | None, tuple[Any, str, str] | None]:
    """Return the AMI id, if there is one, and what is wrong on the way to it."""
    if not image.startswith("/"):
        return image, None
    try:
        found = account.clients("ssm").get_parameter(Name=image)["Parameter"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "ParameterNotFound":
            raise
        return None, (
            "failure",
            "no such parameter in this region",
            "put the image's id there, or name another",
        )
    ami, kind = found["Value"], found.get("DataType", "text")
    at_launch = any(one.get("imageId") == _AT_LAUNCH + image for one in _templates(stack))
    if at_launch and not image.startswith(_OF_AWS) and kind != "aws:ec2:image":
        advice = f"make it anew: aws ssm put-parameter --data-type aws:ec2:image --name {image} --value {ami}"
        return ami, (
            "failure",
            f"the parameter's data type is {kind}, Auto Scaling wants aws:ec2:image",
            advice,
        )
    return ami, None


def _described(ec2: Any, ami: str) -> Mapping[str, Any] | None:
    try:
        images: list[Mapping[str, Any]] = ec2.describe_images(ImageIds=[ami])["Images"]
    except ClientError as error:
        if not error.response["Error"]["Code"].startswith("InvalidAMIID"):
            raise
        return None
    return images[0] if images else None


def _fits(
    subject: str, image: Mapping[str, Any], capacity: Capacity, type_: str, root: str | None
) -> Iterator[Remark]:
    architecture, device = capacity.architecture, image.get("RootDeviceName")
    gib = next(
        (
            mapping["Ebs"].get("VolumeSize", 0)
            for mapping in image.get("BlockDeviceMappings", ())
            if mapping.get("DeviceName") == device and "Ebs" in mapping
        ),
        0,
    )
    if image.get("State", "available") != "available":
        yield Remark(subject, "failure", f"{image['ImageId']} is {image['State']}", "name another image")
    elif image["Architecture"] != architecture:
        found = f"{image['ImageId']} is for {image['Architecture']}, {type_} is {architecture}"
        yield Remark(subject, "failure", found, "name an image of the types' architecture")
    elif root is not None and device != root:
        found = f"its root device is {device}, the launch template sets {root}"
        yield Remark(subject, "failure", found, f"name an image whose root device is {root}")
    elif gib > capacity.root_volume_gib:
        found = f"its root volume has {gib} GiB, rootVolumeGiB is {capacity.root_volume_gib}"
        yield Remark(subject, "failure", found, f"set rootVolumeGiB to {gib} or more")
    else:
        yield Remark(subject, "ok", f"{image['ImageId']}, {image.get('Name', 'without a name')}")


def _brings(subject: str, image: Mapping[str, Any], command: Sequence[str]) -> Iterator[Remark]:
    """Tell what Python a process of the image finds, where a command asks for one."""
    if not command or not command[0].startswith("python"):
        return
    system = next((name for name in _PYTHONS if name in image.get("Name", "")), None)
    if system is None:
        yield Remark(
            subject, "not known", f"which {command[0]} the image has", "see that the command is there"
        )
    elif command[0] == "python":
        found = f"{system} has python3 ({_PYTHONS[system]}) and no python"
        yield Remark(subject, "failure", found, "write python3 in the command")


def _commands(stack: Stack) -> dict[str, tuple[str, ...]]:
    """Return by group what runs as a process of the image; a container brings its own."""
    services = {one.name: one.command for one in stack.settings.services if one.image is None}
    jobs = (*stack.settings.jobs, *(builder.entry for builder in stack.settings.builders))
    return services | {job.name: job.command for job in jobs}


def _templates(stack: Stack) -> Iterator[Mapping[str, Any]]:
    return stack.of_type("aws:ec2/launchTemplate:LaunchTemplate")


def _root_device(stack: Stack) -> str | None:
    """Return the first device of the templates, which is the root."""
    template = next(_templates(stack), {})
    return next((one["deviceName"] for one in template.get("blockDeviceMappings", ())), None)
