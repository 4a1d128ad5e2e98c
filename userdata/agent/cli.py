"""The agent's command line: ``python -m userdata.agent <subcommand>``, one systemd unit for each."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from contracts.agent.names import CONFIG_PATH, RUN_DIR
from userdata.agent import configuration, tasks
from userdata.agent.aws.imds import DEFAULT_URL
from userdata.agent.machine import log
from userdata.agent.machine.errors import AgentError

Task = Callable[[tasks.Node, argparse.Namespace], int]


def parser() -> argparse.ArgumentParser:
    """Return the parser; each subcommand's ``task`` is what carries it out."""
    top = argparse.ArgumentParser(prog="gpu-spot-agent", description="What a GPU instance does by itself.")
    top.add_argument(
        "--config", type=Path, default=CONFIG_PATH, help="the configuration (default: %(default)s)"
    )
    top.add_argument(
        "--run-dir", type=Path, default=RUN_DIR, help="notice and worker files (default: %(default)s)"
    )
    top.add_argument(
        "--metadata-url", default=DEFAULT_URL, help="the metadata service (default: %(default)s)"
    )
    commands = top.add_subparsers(dest="command", required=True)

    def add(name: str, task: Task, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(task=task)
        return command

    add("watch", lambda node, _: tasks.watch(node), "hear the notice, pass it on, use all of it")
    volume = add(
        "volume", lambda node, a: tasks.volume(node, a.action), "bring the data volume here, or give it back"
    )
    volume.add_argument("action", choices=("up", "down"))
    add("efs", lambda node, _: tasks.efs(node), "mount the file systems")
    add("run", lambda node, _: tasks.run(node), "run the training job")
    add("prepare", lambda node, _: tasks.prepare(node), "make ready what a launch waits for")
    add("work", lambda node, _: tasks.work(node), "run the service's workers")
    add("landlord", lambda node, _: tasks.landlord(node), "look after a shared host's tenants")
    add("metrics", lambda node, _: tasks.metrics(node), "send GPU metrics")
    hook = add("hook", lambda node, a: tasks.hook(node, a.which, a.result), "complete a lifecycle hook")
    hook.add_argument("which", choices=("launch", "terminate"))
    hook.add_argument("result", choices=("CONTINUE", "ABANDON"))
    add("doctor", lambda node, _: tasks.doctor(node), "check everything and explain")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; every error is one log line and an exit code (see `errors`)."""
    options = parser().parse_args(arguments)
    log.configure()
    try:
        node = tasks.Node(configuration.load(options.config), options.run_dir, options.metadata_url)
        return int(options.task(node, options))
    except AgentError as error:
        log.error("failed", command=options.command, error=str(error), kind=type(error).__name__)
        return error.exit_code
    except Exception:
        log.error("failed", command=options.command, exc_info=True)
        return 1
    finally:
        sys.stdout.flush()
