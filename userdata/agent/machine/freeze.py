"""Hold a mounted file system still for a moment, so that a snapshot of its device is whole."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from userdata.agent.machine import log
from userdata.agent.machine.errors import AgentError

LONGEST: Final = 20
"""Seconds after which it thaws whatever else happens: a writer stands still as long."""

# Ends when we say so or die (the pipe closes), or when the time is up; then it thaws, in each of these cases.
_GUARD: Final = 'timeout "$1" cat >/dev/null; exec fsfreeze --unfreeze "$0"'


@contextlib.contextmanager
def frozen(run: Callable[[Sequence[str]], str], path: Path, longest: int = LONGEST) -> Iterator[None]:
    """Freeze the file system at ``path`` while the body runs; a process of its own thaws it at the end.

    So it thaws, too, when this process is killed or the body hangs. What is dirty is written before, not
    while all stand still. Only where something is mounted: else it would be the root file system.

    Raises:
        AgentError: it cannot be frozen; the body has not run.
    """
    run(["sync", "--file-system", str(path)])
    try:
        guard = subprocess.Popen(  # noqa: S603
            ["sh", "-c", _GUARD, str(path), str(longest)],  # noqa: S607
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
            log.warning("the file system was thawed early or not by its guard", path=str(path))
            with contextlib.suppress(AgentError):  # it is not frozen
                run(["fsfreeze", "--unfreeze", str(path)])
