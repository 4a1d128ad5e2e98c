"""Whether this machine will be taken: from the agent's file, from SIGTERM, or from the metadata service."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any, Final

from spot_training.metadata import Ask, ask, is_ec2

NOTICE_VARIABLE: Final = "GPU_SPOT_NOTICE"
GRACE_SECONDS: Final = 100.0
"""What a SIGTERM without a notice leaves: docs/contract.md, "The time"."""
_LOOK_EVERY: Final = 1.0
_ASK_EVERY: Final = (
    5.0  # AWS's advice for interruption notices (EC2 guide, "Spot Instance interruption notices")
)
_log = logging.getLogger("spot_training")


class Notice:
    """Hears of the end of this machine, and when that is. ``told`` costs a microsecond: ask at every step.

    SIGTERM no longer ends the process: who asks must. The handler that was there before is called, too. Only
    the main thread may install one (a rule of Python); elsewhere the file and the metadata service remain.
    The metadata service is asked by a thread, and only on EC2 where no agent does it (no
    ``$GPU_SPOT_NOTICE``).
    """

    def __init__(
        self,
        *,
        environment: Mapping[str, str] | None = None,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        metadata: Ask | None = None,
    ) -> None:
        """``metadata``: asks the metadata service; by default this machine's, where it has one."""
        environment = os.environ if environment is None else environment
        file = environment.get(NOTICE_VARIABLE)
        self._file = Path(file) if file else None
        self._wall = wall
        self._clock = clock
        self._looked = -_LOOK_EVERY
        self._signalled: float | None = None
        self._deadline: float | None = None
        self._heard = False
        self._before: Any = None
        self._closed = threading.Event()
        self._has_handler = self._listen()
        if self._file is None and (metadata is not None or is_ec2()):
            threading.Thread(target=self._poll, args=(metadata or ask,), daemon=True).start()

    @property
    def told(self) -> bool:
        """Whether this machine goes, or this process was asked to end."""
        if self._signalled is not None or self._heard:
            return True
        now = self._clock()
        if self._file is not None and now - self._looked >= _LOOK_EVERY:
            self._looked = now
            self._read(self._file)
        return self._heard

    @property
    def deadline(self) -> float | None:
        """When the machine goes, in epoch seconds; None as long as nobody was told."""
        if not self.told:
            return None
        if self._deadline is None and self._file is not None:
            self._read(self._file)  # the signal may come before the file is seen
        if self._deadline is not None:
            return self._deadline
        return None if self._signalled is None else self._signalled + GRACE_SECONDS

    @property
    def seconds_left(self) -> float | None:
        """How long it is until then, 0 or more."""
        deadline = self.deadline
        return None if deadline is None else max(0.0, deadline - self._wall())

    def close(self) -> None:
        """Put the handler back that was there before, and stop asking."""
        self._closed.set()
        if self._has_handler:
            signal.signal(signal.SIGTERM, self._before if self._before is not None else signal.SIG_DFL)
            self._has_handler = False

    def _listen(self) -> bool:
        try:
            self._before = signal.signal(signal.SIGTERM, self._on_signal)
        except ValueError:
            _log.warning("SIGTERM is not heard: a handler can be installed in the main thread only")
            return False
        return True

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._signalled is None:
            self._signalled = self._wall()
        if callable(self._before):
            self._before(number, frame)

    def _read(self, file: Path) -> None:
        try:
            text = file.read_text("utf-8")
        except OSError:
            return  # there is none yet
        self._heard = True  # whatever it says
        try:
            self._deadline = float(json.loads(text)["deadline"])
        except (ValueError, KeyError, TypeError):
            _log.warning("%s has no deadline; two minutes are assumed", file)
            self._deadline = self._wall() + 120.0

    def _poll(self, metadata: Ask) -> None:
        while not self._heard:
            try:
                document = metadata("spot/instance-action")
            except OSError:
                document = None  # asked again; SIGTERM remains
            if document is not None:
                try:
                    said = datetime.fromisoformat(json.loads(document)["time"])
                    self._deadline = said.timestamp()
                except (ValueError, KeyError, TypeError):
                    self._deadline = self._wall() + 120.0
                self._heard = True
            if self._closed.wait(_ASK_EVERY):
                return
