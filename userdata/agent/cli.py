"""The agent's command line, ``python -m userdata.agent <subcommand>``; systemd units run the subcommands."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from contracts.agent import config
from contracts.agent.config import Config
from contracts.agent.names import CONFIG_PATH, RUN_DIR
from contracts.stored import ContractError
from userdata.agent import tasks
from userdata.agent.aws.clients import bypass_proxy_for_metadata
from userdata.agent.aws.imds import DEFAULT_URL
from userdata.agent.machine import log
from userdata.agent.machine.errors import AgentError, ConfigError

Task = Callable[[tasks.Node, argparse.Namespace], int]


def parser() -> argparse.ArgumentParser:
    """Return the parser; each subcommand's ``task`` executes it."""
    top = argparse.ArgumentParser(prog="gpu-spot-agent", description="Node agent of a GPU instance.")
    top.add_argument(
        "--config", type=Path, default=CONFIG_PATH, help="configuration file (default: %(default)s)"
    )
    top.add_argument(
        "--run-dir",
        type=Path,
        default=RUN_DIR,
        help="directory of the notice and worker files (default: %(default)s)",
    )
    top.add_argument(
        "--metadata-url", default=DEFAULT_URL, help="URL of the metadata service (default: %(default)s)"
    )
    commands = top.add_subparsers(dest="command", required=True)

    def add(name: str, task: Task, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(task=task)
        return command

    add("watch", lambda node, _: tasks.watch(node), "watch for interruption notices and signal the workload")
    volume = add("volume", lambda node, a: tasks.volume(node, a.action), "attach or detach the data volume")
    volume.add_argument("action", choices=("up", "down"))
    add("efs", lambda node, _: tasks.efs(node), "mount the EFS file systems")
    add("run", lambda node, _: tasks.run(node), "run the training job")
    add("prepare", lambda node, _: tasks.prepare(node), "prepare the instance and complete the launch hook")
    add("work", lambda node, _: tasks.work(node), "run the service's workers")
    add("landlord", lambda node, _: tasks.shared_host(node), "supervise the tenants of a shared host")
    add("proxy", lambda node, _: tasks.proxy(node), "configure and supervise the proxy of an HTTP service")
    add("metrics", lambda node, _: tasks.metrics(node), "send GPU metrics")
    hook = add("hook", lambda node, a: tasks.hook(node, a.which, a.result), "complete a lifecycle hook")
    hook.add_argument("which", choices=("launch", "terminate"))
    hook.add_argument("result", choices=("CONTINUE", "ABANDON"))
    add("doctor", lambda node, _: tasks.doctor(node), "check the instance and report problems")
    return top


def load(path: Path) -> Config:
    """Return the configuration in the file at ``path``; raise ``ConfigError`` if it is invalid."""
    try:
        return config.parse(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except ContractError as error:
        raise ConfigError(f"{path}: {error}") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; an error is one log line and an exit code (see `errors`)."""
    options = parser().parse_args(arguments)
    log.configure(identifier=f"gpu-spot-{options.command}")
    bypass_proxy_for_metadata(os.environ)
    node = None
    try:
        node = tasks.Node(load(options.config), options.run_dir, options.metadata_url)
        return int(options.task(node, options))
    except Exception as error:
        from userdata.agent.tasks import crashes

        if isinstance(error, AgentError):
            log.error("failed", command=options.command, error=str(error), kind=type(error).__name__)
            if node is None or error.exit_code != AgentError.exit_code:
                return error.exit_code
        else:
            log.error("failed", command=options.command, exc_info=True)
        return 1 if node is None else crashes.handle(node, options.command, error)
    finally:
        sys.stdout.flush()
