"""The shares that make a weight on this host: what a runtime makes of them differs between versions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from userdata.agent.machine import log
from userdata.agent.tenants import weights

_CGROUPS: Final = Path("/sys/fs/cgroup")
_PROC: Final = Path("/proc")


class Shares:
    """Reckons with the newest runtime's curve until a container's own weight says otherwise."""

    def __init__(self, cgroups: Path = _CGROUPS, proc: Path = _PROC) -> None:
        self._cgroups = cgroups
        self._proc = proc
        # Version 1 has shares themselves, and what counts is their ratio, as that of weights.
        self._is_v2 = (cgroups / "cgroup.controllers").exists()
        self._curve: Callable[[int], int] = weights.weight_of if self._is_v2 else int

    def of(self, weight: int) -> int:
        """Return the shares to ask for."""
        return weights.shares_for(weight, self._curve)

    def learn(self, pid: int, shares: int) -> bool:
        """Read back what became of ``shares`` in ``pid``'s container; tell whether the curve is another."""
        if not self._is_v2:
            return False
        try:
            path = (self._proc / str(pid) / "cgroup").read_text().strip().split("::", 1)[1]
            made = int((self._cgroups / path.lstrip("/") / "cpu.weight").read_text())
        except (OSError, ValueError, IndexError):
            return False
        fitting = [curve for curve in (weights.weight_of, weights.old_weight_of) if curve(shares) == made]
        if not fitting:
            log.warning("a weight that no known runtime makes", shares=shares, weight=made)
            return False
        is_other = self._curve not in fitting
        self._curve = fitting[0] if is_other else self._curve
        return is_other
