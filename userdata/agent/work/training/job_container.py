"""A job's command in a container of its image, as the job's user."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from userdata.agent.machine import files
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import Host
from userdata.agent.work import containers
from userdata.agent.work.container import LIMITS, Container, machine_memory, shared_memory
from userdata.agent.work.training.environment import CommandLine

_MEMORY_LIMIT_SHARE: Final = 0.95
"""Memory limit of the container, as a share of the machine's memory: if it is exceeded, the kernel kills a
process in the container, never one of the agent's."""
# These variables have the host's values, not the image's.
_HOST_VARIABLES: Final = ("PATH", "USER", "LOGNAME")


@dataclass(frozen=True)
class Mounts:
    """Directories that the container sees at the same paths."""

    writable: Sequence[Path]
    read_only: Sequence[Path] = ()


class JobContainer:
    """Runs a command by ``docker run`` in the foreground; for signals see `process.find_signal_targets`.

    Until a process runs in the container, the Docker client gets the signal and forwards it to
    ``docker-init``, which sends it to the group of its child (tini's ``TINI_KILL_PROCESS_GROUP``). The
    metadata service is not reachable on Docker's bridge.

    Args:
        job: a job has one container at a time.
        directory: where the command's environment is written, readable by root only.
        password: returns the password of ECR in a region.
        gpus: returns the number of GPUs, all of which the container gets; None: it gets none.
        limits: ``docker run``'s ``--ulimit``.
        memory: of the machine, in bytes; None: read from the kernel.
        uses_aws: whether it reaches the metadata service, which has the instance's role: on the host's
            network, because the hop limit is 1.
        shm_gib: size of ``/dev/shm``; None: by the machine's memory.
    """

    def __init__(
        self,
        host: Host,
        job: str,
        image: str,
        user: str,
        mounts: Mounts,
        directory: Path,
        password: Callable[[str], str],
        gpus: Callable[[], int] | None,
        environment: Mapping[str, str],
        limits: Sequence[str] = LIMITS,
        memory: int | None = None,
        *,
        uses_aws: bool = False,
        shm_gib: int | None = None,
    ) -> None:
        self._host = host
        self.name = f"gpu-spot-job-{job}"
        self._image = image
        self.user = ""  # the Docker client runs as the agent's user, its container as `user`
        self._account = user
        self._mounts = mounts
        self._file = directory / "job.env"
        self._password = password
        self._gpus = gpus
        self._declared_environment = environment
        self._limits = limits
        self._uses_aws = uses_aws
        self._memory = memory or machine_memory()
        self._shm_gib = shm_gib

    def clear(self) -> None:
        """Remove the container of an earlier start: it keeps running if its client is killed."""
        containers.remove(self._host, self.name)

    def prepare(self) -> None:
        """Pull the image, and check that its containers get the GPUs.

        Raises:
            AgentError: the registry rejected the request or is unreachable, or containers get no GPUs.
        """
        containers.pull(self._host, self._image, self._password)
        containers.block_metadata(self._host)
        if self._gpus:
            containers.check_gpus(self._host, self._image, self._gpus())

    def start(self, command: list[str], environment: Mapping[str, str], directory: Path) -> CommandLine:
        """Return the Docker client's command; ``environment`` is passed in a file.

        Raises:
            AgentError: the user does not exist, or Docker does not respond.
        """
        self.clear()
        variables = {
            key: value
            for key, value in environment.items()
            if key not in _HOST_VARIABLES or key in self._declared_environment
        }
        variables["TINI_KILL_PROCESS_GROUP"] = "1"
        files.write_atomic(self._file, "".join(f"{key}={value}\n" for key, value in variables.items()), 0o600)
        argv = self.container().docker_run(self.name, self._file)
        # The client forwards the command's output; a second copy in Docker's log would fill the disk.
        argv += ["--rm", "--pull", "never", "--log-driver", "none", *self._group_options()]
        argv += ["--workdir", str(directory), "--entrypoint", command[0]]
        return CommandLine([*argv, self._image, *command[1:]], dict(os.environ))

    def container(self) -> Container:
        """Return what the container gets.

        Raises:
            AgentError: the user does not exist.
        """
        account = self._find_account()
        return Container(
            network="host" if self._uses_aws else "bridge",
            gpus=("all",) if self._gpus else (),
            shared_memory=shared_memory(self._shm_gib, self._memory),
            memory=int(self._memory * _MEMORY_LIMIT_SHARE),
            writable=tuple((path, path) for path in self._mounts.writable),
            read_only=tuple((path, path) for path in self._mounts.read_only),
            user=f"{account.pw_uid}:{account.pw_gid}",
            limits=tuple(self._limits),
            has_role=self._uses_aws,
        )

    def _find_account(self) -> pwd.struct_passwd:
        try:
            return pwd.getpwnam(self._account)
        except KeyError:
            raise AgentError(f"user {self._account!r} does not exist; name a user of this machine") from None

    def _group_options(self) -> list[str]:
        primary = self._find_account().pw_gid
        groups = [group for group in os.getgrouplist(self._account, primary) if group != primary]
        return [option for group in groups for option in ("--group-add", str(group))]
