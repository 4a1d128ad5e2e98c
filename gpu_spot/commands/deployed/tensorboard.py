"""``gpu-spot tensorboard``: the curves of all jobs, through Session Manager, on a page of this machine."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import boto3
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console

from contracts import names
from gpu_spot.commands import project
from pulumi_declared.stackfile import load
from userdata.tensorboard import IDLE_MINUTES, PORT

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ssm import SSMClient

DOCUMENT: Final = "AWS-StartPortForwardingSession"
_PROGRAMS: Final = ("aws", "session-manager-plugin")
_LOOK_EVERY: Final = 5.0
_READY_WITHIN: Final = 600.0


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser("tensorboard", help="open TensorBoard over what all jobs write to EFS")
    parser.add_argument("--stack", default="dev", help="the stack file Pulumi.<STACK>.yaml (default: dev)")
    parser.add_argument("--port", type=int, default=PORT, help=f"the port on this machine (default: {PORT})")
    parser.add_argument("--stop", action="store_true", help="end the instance that shows it now")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Start the instance unless it runs, and forward a port to it until the user ends that; or end it."""
    console = Console()
    region = load(project.find(), args.stack).region
    ec2, ssm = boto3.client("ec2", region_name=region), boto3.client("ssm", region_name=region)
    try:
        if args.stop:
            ended = stop(ec2, args.stack)
            console.print(f"ended {', '.join(ended)}" if ended else "nothing runs")
            return 0
        if missing := [program for program in _PROGRAMS if shutil.which(program) is None]:
            raise ValueError(
                f"{', '.join(missing)} not found, needed: the AWS CLI and its Session Manager plugin"
            )
        instance, is_new = running(ec2, args.stack)
        console.print(f"{instance} {'is started, this takes two minutes' if is_new else 'runs already'}")
        wait(ssm, instance)
    except (BotoCoreError, ClientError) as error:
        raise ValueError(f"TensorBoard of stack {args.stack!r} in {region}: {error}") from None
    console.print(
        f"http://127.0.0.1:{args.port} (Ctrl-C closes it; the instance ends by itself after {IDLE_MINUTES} "
        "minutes without a page open)",
        soft_wrap=True,
    )
    try:
        return subprocess.run(forwarding(instance, region, args.port), check=False).returncode  # noqa: S603
    except KeyboardInterrupt:
        return 0


def running(ec2: EC2Client, stack: str) -> tuple[str, bool]:
    """Return the instance that shows it, and whether it was started only now.

    Raises ``ValueError`` where the stack has no ``tensorboard``.
    """
    if found := _instances(ec2, stack):
        return found[0], False
    templates = ec2.describe_launch_templates(Filters=_filters(stack))["LaunchTemplates"]
    if not templates:
        raise ValueError(
            f"stack {stack!r} has no launch template for it, allowed: after `up` with tensorboard"
        )
    template = {"LaunchTemplateId": templates[0]["LaunchTemplateId"], "Version": "$Default"}
    started = ec2.run_instances(LaunchTemplate=template, MinCount=1, MaxCount=1)  # type: ignore[arg-type]
    return started["Instances"][0]["InstanceId"], True


def stop(ec2: EC2Client, stack: str) -> list[str]:
    """End what shows it; return the instances."""
    if found := _instances(ec2, stack):
        ec2.terminate_instances(InstanceIds=found)
    return found


def wait(ssm: SSMClient, instance: str, sleep: Callable[[float], object] = time.sleep) -> None:
    """Wait until Session Manager reaches an instance; raise ``ValueError`` after ten minutes."""
    for _ in range(round(_READY_WITHIN / _LOOK_EVERY)):
        found = ssm.describe_instance_information(Filters=[{"Key": "InstanceIds", "Values": [instance]}])
        if any(one["PingStatus"] == "Online" for one in found["InstanceInformationList"]):
            return
        sleep(_LOOK_EVERY)
    raise ValueError(f"{instance} is not reached by Session Manager within {_READY_WITHIN / 60:g} minutes")


def forwarding(instance: str, region: str, port: int) -> list[str]:
    """Return the command that brings the page here.

    Source: Systems Manager guide, "Start a session", port forwarding.
    """
    ports = f"portNumber={PORT},localPortNumber={port}"
    return [
        *("aws", "ssm", "start-session", "--region", region, "--target", instance),
        *("--document-name", DOCUMENT, "--parameters", ports),
    ]


def _instances(ec2: EC2Client, stack: str) -> list[str]:
    states: Any = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    pages = ec2.get_paginator("describe_instances").paginate(Filters=_filters(stack) + states)
    return sorted(one["InstanceId"] for page in pages for r in page["Reservations"] for one in r["Instances"])


def _filters(stack: str) -> Any:
    tags = {names.TAG_STACK: stack, "Name": names.tensorboard(stack)}
    return [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()]
