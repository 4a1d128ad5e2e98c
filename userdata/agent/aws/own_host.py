"""Metadata client for an on-premises host: no metadata service, no interruptions."""

from __future__ import annotations

import re
import socket
from typing import Final

from userdata.agent.aws.imds import IdentityDocument, Metadata, MetadataDocument
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import ConfigError

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")
"""A host name (RFC 1123) of at most 63 characters."""


class OnPremisesHost(Metadata):
    """Metadata of an on-premises host: only its identity, no documents."""

    def __init__(self, clock: Clock, region: str, name: str = "") -> None:
        """``region`` is the stack's region; ``name`` is by default the host name.

        Raises:
            ConfigError: the name is not a valid unique host name.
        """
        super().__init__(clock)
        name = name or socket.gethostname()
        if not _NAME.fullmatch(name) or name == "localhost":
            raise ConfigError(f"the host name must be unique, of letters, digits, '.' and '-', not {name!r}")
        self._facts = IdentityDocument(name, "", region, "")

    def get(self, path: str) -> MetadataDocument | None:
        """Return None: there is no document."""
        return None

    def identity(self) -> IdentityDocument:
        """Return the host name as instance id, and the stack's region."""
        return self._facts
