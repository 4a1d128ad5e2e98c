"""``gpu-spot drill``: interrupt Spot Instances of a group on purpose and watch the recovery."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from contracts import names
from gpu_spot.commands.stack import add_stack_options

if TYPE_CHECKING:
    from gpu_spot.declared.stackfile import StackConfig
    from gpu_spot.preflight.account import ClientOf
    from gpu_spot.status.snapshot import GroupSnapshot, StackSnapshot

POLL_SECONDS: Final = 15.0
NOTICE_TIMEOUT_SECONDS: Final = 600.0
"""Seconds after the start within which an instance must be interrupted; otherwise the drill has failed."""
DRILL_TIMEOUT_SECONDS: Final = 3600.0
"""Seconds after the start within which the group must have recovered."""


class DrillError(ValueError):
    """A drill cannot be started, or interrupted no instance; one line with the reason."""


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser(
        "drill",
        help="interrupt Spot Instances of a group on purpose and watch its status",
        description="Start the interruption drill that the stack declares for a group (capacity.drill), by "
        "AWS FIS: the declared number of its Spot Instances receive a two-minute interruption notice and are "
        "terminated. Show the status of the group until they are replaced and jobs run again. The exit "
        "status is 1 if the recovery takes more than an hour.",
    )
    add_stack_options(parser)
    parser.add_argument("--group", required=True, help="capacity group to drill")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run a drill with the caller's credentials."""
    from gpu_spot.commands.stack import clients_for, name_in_aws
    from gpu_spot.declared.stackfile import find_project, load

    config = load(find_project(), args.stack)
    args.stack = name_in_aws(config)
    return act(args, clients_for(args, config), config)


def act(
    args: argparse.Namespace,
    clients: ClientOf,
    config: StackConfig,
    wait: Callable[[], object] = lambda: time.sleep(POLL_SECONDS),
    now: Callable[[], float] | None = None,
) -> int:
    """Run a drill on a deployed group through ``clients``. Returns 1 if the group does not recover in time.

    Raises ``DrillError`` if the group is not ready for a drill, or FIS interrupts no instance.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    from gpu_spot.errors import aws_error
    from gpu_spot.preflight.stack import settings_of
    from gpu_spot.status.command import declared_entries
    from gpu_spot.status.reader import StackReader

    reader = StackReader(clients, args.stack, config.region, declared_entries(settings_of(config)), now)
    try:
        return follow(args, clients("fis"), lambda: reader.read(args.group), wait)
    except (BotoCoreError, ClientError) as error:
        raise aws_error(f"stack {args.stack!r} in {config.region}", error) from None


def follow(
    args: argparse.Namespace, fis: Any, read: Callable[[], StackSnapshot], wait: Callable[[], object]
) -> int:
    """Confirm and start a drill, then show each status that ``read`` returns. As ``act``."""
    from rich.console import Console
    from rich.live import Live

    from gpu_spot.commands.stack import confirm
    from gpu_spot.status.text import view

    before = read()
    if reasons := [*_refusals(before)]:
        raise DrillError(f"group {args.group!r} of stack {args.stack!r}: {'; '.join(reasons)}")
    tags = {names.TAG_STACK: args.stack, names.TAG_GROUP: args.group}
    template = _template(fis, tags)
    if not args.yes:
        question = f"Interrupt Spot Instances of {args.group} in stack {args.stack} ({before.region})?"
        confirm(question, "drill cancelled: nothing was started", DrillError)
    experiment = fis.start_experiment(experimentTemplateId=template, tags=tags)["experiment"]["id"]
    sys.stderr.write(f"started AWS FIS experiment {experiment}; it continues if this command ends\n")
    console = Console(markup=False, emoji=False)
    lost: set[str] = set()
    with Live(view(before), console=console, auto_refresh=False, screen=console.is_terminal) as live:
        while True:
            wait()
            snapshot = read()
            live.update(view(snapshot), refresh=True)
            [group] = snapshot.groups
            lost |= _lost(before.groups[0], group)
            seconds = snapshot.now - before.now
            if lost and _is_whole(snapshot, lost):
                break
            state = fis.get_experiment(id=experiment)["experiment"]["state"]
            if not lost and state["status"] in ("failed", "stopped", "cancelled"):
                raise DrillError(
                    f"experiment {experiment} of group {args.group!r} has {state['status']}: "
                    f"{state.get('reason', '')}"
                )
            if seconds >= (DRILL_TIMEOUT_SECONDS if lost else NOTICE_TIMEOUT_SECONDS):
                ended = f"{args.group} lost {', '.join(sorted(lost)) or 'no instance'}, not recovered"
                console.print(f"{ended} {seconds / 60:.0f} minutes after the start", highlight=False)
                return 1
    console.print(f"{args.group} recovered {seconds / 60:.1f} minutes after the start", highlight=False)
    console.print(f"interrupted: {', '.join(sorted(lost))}", highlight=False)
    return 0


def _template(fis: Any, tags: dict[str, str]) -> str:
    """Return the id of the group's experiment template; one call for each hundred of the region."""
    for page in fis.get_paginator("list_experiment_templates").paginate():
        for template in page["experimentTemplates"]:
            if tags.items() <= template.get("tags", {}).items():
                return str(template["id"])
    raise DrillError(
        f"group {tags[names.TAG_GROUP]!r} of stack {tags[names.TAG_STACK]!r} has no drill; set "
        "capacity.drill in the stack file and deploy"
    )


def _refusals(snapshot: StackSnapshot) -> Iterator[str]:
    """Yield why the group is not ready for a drill."""
    from lambdas.core.model import PurchaseOption

    [group] = snapshot.groups
    if group.error:
        yield group.error
        return
    if snapshot.alarms:
        yield f"active alarms: {', '.join(alarm.name for alarm in snapshot.alarms)}"
    if group.missing_slots:
        yield f"misses {group.missing_slots} of {group.target} slots; a drill requires a complete group"
    if any(instance.deadline is not None for instance in group.instances):
        yield "has interrupted instances"
    if snapshot.jobs and not any(job.status.phase == "running" for job in snapshot.jobs):
        states = (
            f"{job.snapshot.name} is {job.status.phase}{job.status.reason and ': '}{job.status.reason}"
            for job in snapshot.jobs
        )
        yield f"{', '.join(states)}; a drill requires a running job"
    if not any(instance.purchase_option is PurchaseOption.SPOT for instance in group.instances):
        yield "has no Spot Instance to interrupt"


def _lost(before: GroupSnapshot, group: GroupSnapshot) -> set[str]:
    """Return the instances of the start that are interrupted or gone; EC2 does not show why."""
    remaining = {instance.id for instance in group.instances if instance.deadline is None}
    return {instance.id for instance in before.instances} - remaining


def _is_whole(snapshot: StackSnapshot, lost: set[str]) -> bool:
    """Return whether the lost instances are gone, all slots are ready, and no job waits for its successor."""
    [group] = snapshot.groups
    if group.error or group.missing_slots or lost & {instance.id for instance in group.instances}:
        return False
    # A group of experiments has a phase of its own; each experiment is a job.
    jobs = [job.status.phase for job in snapshot.jobs if not job.snapshot.experiments]
    return all(phase in ("running", "stopped", "done", "failed") for phase in jobs)
