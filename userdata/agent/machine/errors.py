"""The agent's errors.

Each becomes one log line and an exit code by which systemd's ``Restart=`` distinguishes it.
"""

from __future__ import annotations

from typing import ClassVar


class AgentError(Exception):
    """An error that a retry may resolve; systemd restarts the unit."""

    exit_code: ClassVar[int] = 1


class ConfigError(AgentError):
    """Invalid configuration: a retry cannot succeed (78 is ``EX_CONFIG`` of sysexits.h)."""

    exit_code = 78


class RefusedError(AgentError):
    """A state that only an operator may resolve, such as two volumes of one job."""

    exit_code = 77


class TransientError(AgentError):
    """A state that passes, such as a device that has not appeared or a throttled request: observe again."""


class CommandError(AgentError):
    """A command failed; ``stderr`` is its standard error."""

    def __init__(self, text: str, stderr: str = "") -> None:
        super().__init__(text)
        self.stderr = stderr or text


class HostError(AgentError):
    """This host cannot do its work, another may: it is to be replaced."""


class DependencyUnavailableError(AgentError):
    """A dependency outside this host and the job is unavailable and may return."""


class WorkCancelledError(AgentError):
    """The work is cancelled: the instance is being terminated, or the job has ended."""


class LeaseHeldError(AgentError):
    """Another instance holds the job's lease: the job is well, this instance is one too many."""


class LeaseLostError(AgentError):
    """Another instance holds the job's lease: this instance must stop its work on the job."""

    exit_code = 75
