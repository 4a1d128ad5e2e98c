"""Machine images: existence, fit with types and launch template, and their Python; images of containers.

Source: ``DescribeImages``; a root volume must not be smaller than its snapshot (EC2's
``InvalidBlockDeviceMapping``); Auto Scaling guide, "Use AWS Systems Manager parameters instead of AMI IDs in
launch templates": a custom parameter must have the data type ``aws:ec2:image``. That Ubuntu has ``python3``
and no ``python`` is from its packages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from botocore.exceptions import ClientError

from contracts.partitions import ECR_IMAGE
from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult, error_code
from gpu_spot.preflight.stack import Stack
from infra.schema import Capacity

_AT_LAUNCH: Final = "resolve:ssm:"
_AWS_PREFIX: Final = "/aws/service/"
_PYTHONS: Final = {
    "Ubuntu 22.04": "Python 3.10",
    "Ubuntu 24.04": "Python 3.12",
    "Amazon Linux 2023": "Python 3.9",
}

_NOT_THERE: Final = {
    "ImageNotFoundException": "ECR has no image with this digest",
    "RepositoryNotFoundException": "ECR has no such repository",
}


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Check each group's images against its instance types and launch templates."""
    root = _root_device(stack)
    commands = _commands(stack)
    for group, capacity in stack.settings.capacities.items():
        for image, types in capacity.images.items():
            subject, key = f"{group}: {image}", stack.key(group, "capacity.ami")
            ami, problem = _resolve_image(stack, account, image)
            if problem is not None:
                yield CheckResult(subject, "failure", *problem, key)
            if ami is None:
                continue
            image_info = _describe_image(account.clients("ec2"), ami)
            if image_info is None:
                advice = "use an image of this region that the account may launch"
                yield CheckResult(subject, "failure", f"{ami} does not exist", advice, key)
                continue
            results = (
                _check_image(subject, image_info, capacity, types[0], root),
                *_check_python(subject, image_info, commands.get(group, ())),
                *_check_deprecation(subject, image_info, datetime.now(UTC)),
            )
            yield from (replace(result, key=key) for result in results)


def _resolve_image(stack: Stack, account: Account, image: str) -> tuple[str | None, tuple[str, str] | None]:
    """Return the AMI id, if it can be resolved, and the problem with its action, if any."""
    if not image.startswith("/"):
        return image, None
    try:
        parameter = account.clients("ssm").get_parameter(Name=image)["Parameter"]
    except ClientError as error:
        if error_code(error) != "ParameterNotFound":
            raise
        advice = "create it with the image id, or use another"
        return None, ("parameter does not exist in this region", advice)
    ami, kind = parameter["Value"], parameter.get("DataType", "text")
    at_launch = any(template.get("imageId") == _AT_LAUNCH + image for template in _templates(stack))
    if at_launch and not image.startswith(_AWS_PREFIX) and kind != "aws:ec2:image":
        advice = f"recreate it: aws ssm put-parameter --data-type aws:ec2:image --name {image} --value {ami}"
        return ami, (f"the parameter's data type is {kind}; Auto Scaling requires aws:ec2:image", advice)
    return ami, None


def _describe_image(ec2: Any, ami: str) -> Mapping[str, Any] | None:
    try:
        images: list[Mapping[str, Any]] = ec2.describe_images(ImageIds=[ami])["Images"]
    except ClientError as error:
        if not error_code(error).startswith("InvalidAMIID"):
            raise
        return None
    return images[0] if images else None


def _check_image(
    subject: str, image: Mapping[str, Any], capacity: Capacity, type_: str, root: str | None
) -> CheckResult:
    architecture, device = capacity.architecture, image.get("RootDeviceName")
    gib = next(
        (
            mapping["Ebs"].get("VolumeSize", 0)
            for mapping in image.get("BlockDeviceMappings", ())
            if mapping.get("DeviceName") == device and "Ebs" in mapping
        ),
        0,
    )
    ami, state = image["ImageId"], image.get("State", "available")
    for is_wrong, finding, advice in (
        (state != "available", f"{ami} is {state}", "use another image"),
        (
            image["Architecture"] != architecture,
            f"{ami} is for {image['Architecture']}, {type_} is {architecture}",
            "use an image of the types' architecture",
        ),
        (
            root is not None and device != root,
            f"root device is {device}; the launch template sets {root}",
            f"use an image with root device {root}",
        ),
        (
            gib > capacity.root_volume_gib,
            f"root volume has {gib} GiB, rootVolumeGiB is {capacity.root_volume_gib}",
            f"set rootVolumeGiB to {gib} or more",
        ),
    ):
        if is_wrong:
            return CheckResult(subject, "failure", finding, advice)
    return CheckResult(subject, "ok", f"{ami}, {image.get('Name', 'without a name')}")


def _check_deprecation(subject: str, image: Mapping[str, Any], now: datetime) -> Iterator[CheckResult]:
    """Warn of an image whose owner has deprecated it: it launches until the owner deregisters it.

    Source: EC2 user guide, "Deprecate an Amazon EC2 AMI".
    """
    text = image.get("DeprecationTime", "")
    if text and datetime.fromisoformat(text) <= now:
        finding = f"{image['ImageId']} is deprecated since {text[:10]}; its owner may deregister it any day"
        yield CheckResult(subject, "warning", finding, "use a newer image")


def _check_python(subject: str, image: Mapping[str, Any], command: Sequence[str]) -> Iterator[CheckResult]:
    """Check the Python of the image if a command runs it."""
    if not command or not command[0].startswith("python"):
        return
    system = next((name for name in _PYTHONS if name in image.get("Name", "")), None)
    if system is None:
        yield CheckResult(subject, "not known", f"{command[0]} of the image", "check that the command exists")
    elif command[0] == "python":
        finding = f"{system} has python3 ({_PYTHONS[system]}) but no python"
        yield CheckResult(subject, "failure", finding, "use python3 in the command")


def _commands(stack: Stack) -> dict[str, tuple[str, ...]]:
    """Return by group the commands that run on the image; containers are excluded."""
    services = {service.name: service.command for service in stack.settings.services if service.image is None}
    jobs = (*stack.settings.jobs, *(builder.entry for builder in stack.settings.builders))
    return services | {job.name: job.command for job in jobs}


def _templates(stack: Stack) -> Iterator[Mapping[str, Any]]:
    return stack.of_type("aws:ec2/launchTemplate:LaunchTemplate")


def _root_device(stack: Stack) -> str | None:
    """Return the first device of the templates, which is the root device."""
    template = next(_templates(stack), {})
    return next((mapping["deviceName"] for mapping in template.get("blockDeviceMappings", ())), None)


def containers(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Ask ECR for every digest of a container image: an instance or node would start, and wait for it."""
    settings = stack.settings
    training = (*settings.training, *(stack.kubernetes.training if stack.kubernetes else ()))
    for key, image in [
        *((stack.key(service.name, "image"), service.image) for service in stack.services),
        *((stack.key(job.name, "image"), job.image) for job in training),
        *(
            (stack.key(host.name, "tenants"), tenant.image)
            for host in settings.shared_hosts
            for tenant in host.tenants
        ),
        ("kubernetes.checkoutImage", settings.kubernetes.checkout_image if settings.kubernetes else None),
    ]:
        if image is not None:
            yield replace(_container(image, settings.region, account), key=key)


def _container(image: str, region: str, account: Account) -> CheckResult:
    subject, parts, digest = image.rpartition("/")[2][:60], ECR_IMAGE.match(image), image.partition("@")[2]
    if parts is None or parts["region"] != region or not digest:
        return CheckResult(subject, "not known", "in another registry or region, which is not asked")
    repository = {"registryId": parts["account"], "repositoryName": parts["name"]}
    try:
        account.clients("ecr").describe_images(**repository, imageIds=[{"imageDigest": digest}])
    except ClientError as error:
        if (code := error_code(error)) not in _NOT_THERE:
            return CheckResult(subject, "not known", f"ECR's answer: {code}")
        return CheckResult(subject, "failure", _NOT_THERE[code], "push it, or name another digest")
    return CheckResult(subject, "ok", "ECR has it")
