"""``gpu-spot tensorboard``: open TensorBoard for all jobs through a Session Manager tunnel."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from contracts import names
from gpu_spot.commands.stack import add_stack_options, clients_for, name_in_aws, profile_of
from gpu_spot.declared.stackfile import find_project, load
from gpu_spot.errors import aws_error
from userdata.tensorboard import IDLE_MINUTES, PORT

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ssm import SSMClient

DOCUMENT: Final = "AWS-StartPortForwardingSession"
_PROGRAMS: Final = ("aws", "session-manager-plugin")
_POLL_SECONDS: Final = 5.0
_READY_TIMEOUT_SECONDS: Final = 600.0


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser("tensorboard", help="open TensorBoard for the logs that jobs write to EFS")
    add_stack_options(parser)
    parser.add_argument("--port", type=int, default=PORT, help=f"local port (default: {PORT})")
    parser.add_argument("--stop", action="store_true", help="terminate the TensorBoard instance")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Start the instance if necessary and forward a local port to it until Ctrl-C, or terminate it."""
    from rich.console import Console

    console = Console(markup=False, emoji=False)
    config = load(find_project(), args.stack)
    args.stack, region = name_in_aws(config), config.region
    clients = clients_for(args, config)
    ec2, ssm = clients("ec2"), clients("ssm")
    try:
        if args.stop:
            ended = stop(ec2, args.stack)
            console.print(f"terminated {', '.join(ended)}" if ended else "no TensorBoard instance is running")
            return 0
        if missing := [program for program in _PROGRAMS if shutil.which(program) is None]:
            raise ValueError(
                f"{', '.join(missing)} not found; install the AWS CLI and the Session Manager plugin"
            )
        instance, is_new = running(ec2, args.stack)
        state = "is starting, which takes about two minutes" if is_new else "is running"
        console.print(f"{instance} {state}")
        wait(ssm, instance)
    except (BotoCoreError, ClientError) as error:
        raise aws_error(f"TensorBoard of stack {args.stack!r} in {region}", error) from None
    console.print(
        f"http://127.0.0.1:{args.port} (Ctrl-C closes the tunnel; the instance terminates after "
        f"{IDLE_MINUTES} minutes without an open page)",
        soft_wrap=True,
    )
    command = forwarding(instance, region, args.port, profile_of(args, config))
    try:
        return subprocess.run(command, check=False).returncode  # noqa: S603
    except KeyboardInterrupt:
        return 0


def running(ec2: EC2Client, stack: str) -> tuple[str, bool]:
    """Return the TensorBoard instance, and whether it was started by this call.

    Raises ``ValueError`` if the stack has no ``tensorboard``.
    """
    if instances := _instances(ec2, stack):
        return instances[0], False
    templates = ec2.describe_launch_templates(Filters=_filters(stack))["LaunchTemplates"]
    if not templates:
        raise ValueError(
            f"stack {stack!r} has no TensorBoard instance; set `tensorboard` in the stack file and deploy"
        )
    template = {"LaunchTemplateId": templates[0]["LaunchTemplateId"], "Version": "$Default"}
    started = ec2.run_instances(LaunchTemplate=template, MinCount=1, MaxCount=1)  # type: ignore[arg-type]
    return started["Instances"][0]["InstanceId"], True


def stop(ec2: EC2Client, stack: str) -> list[str]:
    """Terminate the TensorBoard instances and return their ids."""
    if instances := _instances(ec2, stack):
        ec2.terminate_instances(InstanceIds=instances)
    return instances


def wait(ssm: SSMClient, instance: str, sleep: Callable[[float], object] = time.sleep) -> None:
    """Wait until an instance is online in Session Manager. Raises ``ValueError`` after ten minutes."""
    for _ in range(round(_READY_TIMEOUT_SECONDS / _POLL_SECONDS)):
        response = ssm.describe_instance_information(Filters=[{"Key": "InstanceIds", "Values": [instance]}])
        if any(info["PingStatus"] == "Online" for info in response["InstanceInformationList"]):
            return
        sleep(_POLL_SECONDS)
    raise ValueError(
        f"{instance} is not online in Session Manager after {_READY_TIMEOUT_SECONDS / 60:g} minutes"
    )


def forwarding(instance: str, region: str, port: int, profile: str | None = None) -> list[str]:
    """Return the command that forwards the local port.

    Source: Systems Manager guide, "Start a session", port forwarding.
    """
    ports = f"portNumber={PORT},localPortNumber={port}"
    return [
        *("aws", "ssm", "start-session", "--region", region, "--target", instance),
        *("--document-name", DOCUMENT, "--parameters", ports, *(("--profile", profile) if profile else ())),
    ]


def _instances(ec2: EC2Client, stack: str) -> list[str]:
    states: Any = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    pages = ec2.get_paginator("describe_instances").paginate(Filters=_filters(stack) + states)
    return sorted(i["InstanceId"] for page in pages for r in page["Reservations"] for i in r["Instances"])


def _filters(stack: str) -> Any:
    tags = {names.TAG_STACK: stack, "Name": names.tensorboard(stack)}
    return [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()]
