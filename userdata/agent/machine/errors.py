"""The agent's errors.

Each becomes one log line and an exit code that systemd's ``Restart=`` can tell apart.
"""

from __future__ import annotations

from typing import ClassVar


class AgentError(Exception):
    """Something is wrong that a retry may mend; systemd restarts the unit."""

    exit_code: ClassVar[int] = 1


class ConfigError(AgentError):
    """The configuration is wrong: a retry is no use (78 is ``EX_CONFIG`` of sysexits.h)."""

    exit_code = 78


class RefusedError(AgentError):
    """The world is in a state that only a person may resolve, such as two volumes that nothing explains."""

    exit_code = 77


class CommandError(AgentError):
    """A command of the host failed; ``said`` is all that it wrote to standard error."""

    def __init__(self, text: str, said: str = "") -> None:
        super().__init__(text)
        self.said = said or text


class ElsewhereError(AgentError):
    """Something that is neither this host's nor the job's is away, and may come back."""


class UnwantedError(AgentError):
    """What is under way is no longer wanted here: the instance is being taken, or the job has ended."""


class LeaseLostError(AgentError):
    """Another instance holds the job's lease: whatever we were about to do is no longer ours to do."""

    exit_code = 75
