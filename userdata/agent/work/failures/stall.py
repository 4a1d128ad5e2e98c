"""Is the job hanging? Pure: no new checkpoint, no output and idle GPUs, all three for long enough.

A job that waits inside a collective operation keeps its GPUs busy while it hangs: that one ends by its own
timeout (``torch.distributed`` has one), with an exit code.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Signs:
    """The signs of life at one moment; the first two count when they change.

    ``checkpoint``: when the newest one was changed. ``output``: how often anything was written to standard
    output, standard error or ``$GPU_SPOT_TELL``. ``is_gpu_busy``: False also where no GPU can be asked.
    """

    checkpoint: float
    output: float
    is_gpu_busy: bool


class Stillness:
    """How long there has been no sign of life; begins with the process.

    Args:
        after: seconds of stillness that count as hanging; 0: none do.
        now: the monotonic clock at the start.
    """

    def __init__(self, after: float, now: float) -> None:
        self._after = after
        self._since = now
        self._last: tuple[float, float] | None = None

    def see(self, signs: Signs, now: float) -> None:
        """Take in what is seen at ``now``."""
        moved = (signs.checkpoint, signs.output)
        if signs.is_gpu_busy or moved != self._last:
            self._since = now
        self._last = moved

    def is_hanging(self, now: float) -> bool:
        """Tell whether nothing was seen for too long; asked after `see`."""
        return self._after > 0 and now - self._since >= self._after

    def seconds(self, now: float) -> float:
        """Return for how long nothing was seen."""
        return now - self._since
