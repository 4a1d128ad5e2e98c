"""A host of one's own in the place of an instance: no metadata service, and nobody who takes it away."""

from __future__ import annotations

import re
import socket
from typing import Final

from userdata.agent.aws.imds import Answer, InstanceFacts, Metadata
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import ConfigError

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")
"""Of a host (RFC 1123), no longer than one label."""


class OwnHost(Metadata):
    """What the metadata service would say here: nothing, but for who we are."""

    def __init__(self, clock: Clock, region: str, name: str = "") -> None:
        """``region`` is where the stack is; ``name`` is the host's own where it is left out.

        Raises:
            ConfigError: the host has no name by which it can be told from others.
        """
        super().__init__(clock)
        name = name or socket.gethostname()
        if not _NAME.fullmatch(name) or name == "localhost":
            raise ConfigError(
                f"the host's name is {name!r}, allowed: one of its own, of letters, digits, '.' and '-'"
            )
        self._facts = InstanceFacts(name, "", region, "")

    def get(self, path: str) -> Answer | None:
        """Return None: there is no document."""
        return None

    def identity(self) -> InstanceFacts:
        """Return the host's name in the place of an instance's id, and the stack's region."""
        return self._facts
