"""Freeze a mounted file system briefly for a consistent snapshot of its device."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from userdata.agent.machine import log
from userdata.agent.machine.errors import AgentError

MAX_FREEZE_SECONDS: Final = 20
"""Seconds after which the file system is thawed in any case; writers block as long."""

# Ends when the pipe closes (the agent closes it or dies) or at the timeout, then thaws the file system.
_GUARD: Final = 'timeout "$1" cat >/dev/null; exec fsfreeze --unfreeze "$0"'


@contextlib.contextmanager
def frozen(
    run: Callable[[Sequence[str]], str], path: Path, max_seconds: int = MAX_FREEZE_SECONDS
) -> Iterator[None]:
    """Freeze the file system at ``path`` while the body runs; a separate guard process thaws it.

    The guard also thaws it if this process is killed or the body hangs. Dirty pages are written before the
    freeze. ``path`` must be a mount point, else the root file system would be frozen.

    Raises:
        AgentError: it cannot be frozen; the body has not run.
    """
    run(["sync", "--file-system", str(path)])
    try:
        guard = subprocess.Popen(  # noqa: S603
            ["sh", "-c", _GUARD, str(path), str(max_seconds)],  # noqa: S607
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise AgentError(f"sh: {error.strerror}") from None
    try:
        run(["fsfreeze", "--freeze", str(path)])
        yield
    finally:
        is_late = guard.poll() is not None
        assert guard.stdin is not None
        guard.stdin.close()
        if guard.wait() != 0 or is_late:
            log.warning("guard thawed file system early or failed", path=str(path))
            with contextlib.suppress(AgentError):  # it is not frozen
                run(["fsfreeze", "--unfreeze", str(path)])
