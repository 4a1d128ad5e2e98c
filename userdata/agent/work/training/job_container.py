"""A job's command in a container of its own image, as the job's user, with what it reads and writes."""

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
from userdata.agent.work.training.environment import Start

_MEMORY_SHARE: Final = 0.95
"""Of the machine's memory: what is over the container's limit kills in there, never one of ours."""
_SHARED_SHARE: Final = 0.5
"""As a kernel does for ``/dev/shm``; Docker gives 64 MiB, and data loaders pass batches through it."""

# With these names the host's own would be meant.
_OF_THE_HOST: Final = ("PATH", "USER", "LOGNAME")


@dataclass(frozen=True)
class Mounts:
    """Folders that the container sees at the same paths: ``both`` to write into, ``read`` to read only."""

    both: Sequence[Path]
    read: Sequence[Path] = ()


class JobContainer:
    """Runs a command by ``docker run`` in the foreground; who in it hears a signal, `process.audience` says.

    Until somebody runs in there, the client hears it, and passes it on to ``docker-init``, which hands it to
    the group of its child (tini's ``TINI_KILL_PROCESS_GROUP``). Metadata are out of reach on Docker's bridge.

    Args:
        job: whose it is; a job has one container at a time.
        image: by its digest.
        user: on this machine, whose ids the command gets.
        directory: where the command's environment is written, for root alone.
        password: of a registry in ECR, asked for when it is needed.
        gpus: tells how many GPUs this machine has, all of which it gets; None: it gets none.
        own: what the stack file puts into the environment.
        limits: ``docker run``'s ``--ulimit``.
        memory: of the machine, in bytes; None: as the kernel says.
    """

    def __init__(
        self,
        host: Host,
        job: str,
        image: str,
        user: str,
        mounts: Mounts,
        directory: Path,
        password: Callable[[], str],
        gpus: Callable[[], int] | None,
        own: Mapping[str, str],
        limits: Sequence[str] = containers.LIMITS,
        memory: int | None = None,
    ) -> None:
        self._host = host
        self.name = f"gpu-spot-job-{job}"
        self._image = image
        self.user = ""  # Docker's client is ours: what it starts is the account's
        self._account = user
        self._mounts = mounts
        self._file = directory / "job.env"
        self._password = password
        self._gpus = gpus
        self._own = own
        self._limits = limits
        self._memory = memory or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def clear(self) -> None:
        """Remove the container of an earlier start: Docker runs it on when its client is killed."""
        containers.remove(self._host, self.name)

    def prepare(self) -> None:
        """Pull the image, and see that it gets the GPUs.

        Raises:
            AgentError: the registry refused or cannot be reached, or containers get no GPUs here.
        """
        containers.pull(self._host, self._image, self._password)
        containers.shut_metadata(self._host)
        if self._gpus:
            containers.check_gpus(self._host, self._image, self._gpus())

    def start(self, command: list[str], environment: Mapping[str, str], place: Path) -> Start:
        """Return the client's command; ``environment`` goes by a file, where the image's own names count.

        Raises:
            AgentError: the user is not there, or Docker does not answer.
        """
        self.clear()
        told = {
            key: value for key, value in environment.items() if key not in _OF_THE_HOST or key in self._own
        }
        told["TINI_KILL_PROCESS_GROUP"] = "1"
        files.write_atomic(self._file, "".join(f"{key}={value}\n" for key, value in told.items()), 0o600)
        argv = containers.run(
            self.name,
            "bridge",
            self._file,
            ["all"] if self._gpus else [],
            [(path, path) for path in self._mounts.both],
            [(path, path) for path in self._mounts.read],
            self._limits,
        )
        # Our client writes what the command says where we write; a second copy would fill the disk.
        argv += ["--rm", "--pull", "never", "--log-driver", "none", *self._who()]
        argv += ["--memory", str(int(self._memory * _MEMORY_SHARE))]
        argv += ["--shm-size", str(int(self._memory * _SHARED_SHARE))]
        argv += ["--workdir", str(place), "--entrypoint", command[0]]
        return Start([*argv, self._image, *command[1:]], dict(os.environ))

    def _who(self) -> list[str]:
        try:
            account = pwd.getpwnam(self._account)
        except KeyError:
            raise AgentError(
                f"user: {self._account!r} is not there; allowed: a user of this machine"
            ) from None
        groups = os.getgrouplist(self._account, account.pw_gid)
        options = ["--user", f"{account.pw_uid}:{account.pw_gid}"]
        for group in groups:
            if group != account.pw_gid:
                options += ["--group-add", str(group)]
        return options
