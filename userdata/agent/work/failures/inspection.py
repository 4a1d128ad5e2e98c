"""Look at the host: now and then while the job runs, thoroughly after a fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from userdata.agent.machine.clock import Clock
from userdata.agent.machine.disks import try_to_write
from userdata.agent.metrics.gpus import LOST_AFTER, Gpus, Look
from userdata.agent.work.failures.faults import DiskFacts, Examination

TRIES: Final = 3
"""So often in a row something of AWS must keep silent before the host counts as cut off."""
TRY_EVERY: Final = 10.0


@dataclass(frozen=True)
class Glance:
    """What one look at the GPUs shows: whether one works, and how many do not answer."""

    is_busy: bool = False
    missing: int = 0


@dataclass(eq=False)
class Inspector:
    """Looks at one host.

    Args:
        gpus: None where none can be asked.
        disks: the host's own disk, and where the job's files lie: its volume, or EFS.
        answers: by name what must answer, each with a question that tells whether it does.
        is_taken: whether the instance is being taken.
        keep: called between what takes seconds, so that a lease lives.
    """

    gpus: Gpus | None
    disks: tuple[Path, Path | None]
    answers: Mapping[str, Callable[[], bool]]
    is_taken: Callable[[], bool]
    clock: Clock
    keep: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._xids: list[int] = []
        self._ecc: dict[str, int] = {}
        self._ecc_new = 0

    def glance(self) -> Glance:
        """Look at the GPUs; what came up is remembered until the next `examine`."""
        if self.gpus is None:
            return Glance()
        return self._take_in(self.gpus.look())

    def examine(self) -> Examination:
        """Look at everything; takes a minute or two where something is wrong. Raises what ``keep`` raises."""
        if self.is_taken():
            return Examination(is_taken=True)
        glance = Glance()
        for _ in range(LOST_AFTER):  # one answer in error is no loss yet
            glance = self.glance()
            if not glance.missing:
                break
            self.clock.sleep(1.0)
        root, data = self.disks
        self.keep()
        seen = Examination(
            gpus_expected=self.gpus.expected if self.gpus else 0,
            gpus_missing=glance.missing,
            xids=tuple(self._xids),
            ecc_errors=self._ecc_new,
            root=DiskFacts(*try_to_write(root)),
            data=DiskFacts(*try_to_write(data)) if data else DiskFacts(),
            silent=tuple(self._silent()),
            is_taken=self.is_taken(),  # it may have come meanwhile
        )
        self._xids, self._ecc_new = [], 0
        return seen

    def _take_in(self, look: Look) -> Glance:
        for gpu in look.gpus:
            if gpu.ecc_uncorrected is not None:
                before = self._ecc.get(gpu.uuid, gpu.ecc_uncorrected)
                self._ecc_new += max(gpu.ecc_uncorrected - before, 0)
                self._ecc[gpu.uuid] = gpu.ecc_uncorrected
        self._xids = sorted({*self._xids, *(code for _, code in look.xids)})
        busy = any(process.utilization > 0 for gpu in look.gpus for process in gpu.processes)
        return Glance(busy, look.lost)

    def _silent(self) -> list[str]:
        silent = list(self.answers)
        for attempt in range(TRIES):
            if attempt:
                self.clock.sleep(TRY_EVERY)
                self.keep()
            silent = [name for name in silent if not self.answers[name]()]
            if not silent:
                break
        return silent
