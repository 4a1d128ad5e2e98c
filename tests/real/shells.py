"""Shells of a tenant's users, as Session Manager's agent starts them, and what keys may do in them."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any, Final

from infra.components.tenants.tenancy import shell
from tests.real.tenants import SharedHost

KEYS: Final = {
    "interrupts its shell": "\x03" * 5,
    "quits its shell": "\x1c" * 5,
    "suspends its shell": "\x1a" * 5,
    "ends its input": "\x04" * 3,
    "detaches from its shell": "\x10\x11",
    "ends its shell": "exit\n",
    "kills its shell": "kill -9 $$\n",
    "escapes from its terminal": "\x1b[5i\x1b]2;;id\x07\x9d\n",
}
"""What could leave the command, and with it the container, and lead to the shell of the host that ran it."""


class UserShell:
    """A session with a document, by its terminal."""

    def __init__(self, document: dict[str, Any]) -> None:
        linux = document["properties"]["linux"]
        assert linux["runAsElevated"], "docker needs root"
        self._terminal, inside = pty.openpty()
        self.process = subprocess.Popen(
            ["setsid", "--ctty", "sh", "-c", linux["commands"]], stdin=inside, stdout=inside, stderr=inside
        )
        os.close(inside)
        self.output = ""

    def type(self, text: str) -> None:
        """Press keys; an ended session ignores them."""
        with contextlib.suppress(OSError):
            os.write(self._terminal, text.encode())

    def shows(self, text: str, seconds: float = 20.0) -> bool:
        """Return whether the terminal shows a text in time, before the session ends."""
        end = time.monotonic() + seconds
        while text not in self.output and time.monotonic() < end:
            if select.select([self._terminal], [], [], 0.1)[0]:
                try:
                    self.output += os.read(self._terminal, 4096).decode(errors="replace")
                except OSError:  # the other end is closed
                    break
        return text in self.output

    def close(self) -> None:
        """End the session as the agent does: hang up."""
        os.close(self._terminal)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGHUP)
        self.process.wait(30)


@contextlib.contextmanager
def session(tenant: str) -> Iterator[UserShell]:
    """Open a session with the stack's document."""
    opened = UserShell(shell(tenant))
    try:
        yield opened
    finally:
        opened.close()


def reached(host: SharedHost, tenant: str) -> list[str]:
    """Return the keys by which a user gets a shell of the host: one that finds a file of the host's only."""
    proof = host.place.run.parent / "proof"
    proof.write_text("of the host")
    got = []
    for name, keys in KEYS.items():
        for is_ready in (False, True):  # docker's client takes the terminal over a moment after its start
            with session(tenant) as user:
                if is_ready:
                    user.type("echo re''ady\n")
                    assert user.shows("ready"), user.output
                user.type(keys)
                user.type(f"\ncat {proof}; echo do''ne\n")
                user.shows("done", 3.0)
                if "of the host" in user.output:
                    got.append(f"{tenant} {name}: {user.output!r}")
    return got
