"""Stall detection: no new checkpoint, no output and idle GPUs, all three for long enough. Pure.

A job that hangs in a collective operation keeps its GPUs busy and is not detected: it ends by the timeout of
``torch.distributed``, with an exit code.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ActivitySample:
    """A job's activity at one moment; a change of ``checkpoint`` or ``output`` is activity.

    ``checkpoint``: number of scans that found new checkpoints. ``output``: counter of writes to standard
    output, standard error and ``$GPU_SPOT_TELL``. ``is_gpu_busy``: False also if NVML supports no GPU here.
    """

    checkpoint: int
    output: float
    is_gpu_busy: bool


class StallDetector:
    """Measures the time without activity, from the start of the process.

    Args:
        timeout_seconds: time without activity that counts as a stall; 0: never.
        now: the monotonic clock at the start.
    """

    def __init__(self, timeout_seconds: float, now: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._since = now
        self._last: tuple[int, float] | None = None

    def update(self, sample: ActivitySample, now: float) -> None:
        """Record the activity at ``now``."""
        changes = (sample.checkpoint, sample.output)
        if sample.is_gpu_busy or changes != self._last:
            self._since = now
        self._last = changes

    def is_stalled(self, now: float) -> bool:
        """Return whether the job is stalled; call after `update`."""
        return self._timeout_seconds > 0 and now - self._since >= self._timeout_seconds

    def stalled_seconds(self, now: float) -> float:
        """Return the seconds since the last activity."""
        return now - self._since
