"""The Docker shares for a CPU weight on this host; the conversion depends on the runtime's version."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from userdata.agent.machine import log
from userdata.agent.tenants import weights

_CGROUPS: Final = Path("/sys/fs/cgroup")
_PROC: Final = Path("/proc")


class WeightCurve:
    """Converts weights to shares; uses the newest runtime's curve until a container's weight differs."""

    def __init__(self, cgroups: Path = _CGROUPS, proc: Path = _PROC) -> None:
        self._cgroups = cgroups
        self._proc = proc
        # cgroup v1 uses shares directly; only their ratio matters, as with weights.
        self._is_v2 = (cgroups / "cgroup.controllers").exists()
        self._curve: Callable[[int], int] = weights.weight_of if self._is_v2 else int

    def shares_for(self, weight: int) -> int:
        """Return the shares for a weight."""
        return weights.shares_for(weight, self._curve)

    def calibrate(self, pid: int, shares: int) -> bool:
        """Read back the weight of ``shares`` in ``pid``'s container; return whether the curve changed."""
        if not self._is_v2:
            return False
        try:
            path = (self._proc / str(pid) / "cgroup").read_text().strip().split("::", 1)[1]
            weight = int((self._cgroups / path.lstrip("/") / "cpu.weight").read_text())
        except (OSError, ValueError, IndexError):
            return False
        matching = [curve for curve in (weights.weight_of, weights.old_weight_of) if curve(shares) == weight]
        if not matching:
            log.warning("CPU weight of unknown runtime", shares=shares, weight=weight)
            return False
        is_changed = self._curve not in matching
        self._curve = matching[0] if is_changed else self._curve
        return is_changed
