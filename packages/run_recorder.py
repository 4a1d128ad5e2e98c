"""A wrapper for a worker's function that records each run before it starts.

Used as ``spot-work packages.run_recorder:run --requests``; ``FUNCTION`` names the function.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from spot_work import Request

FUNCTION: Final = "GPU_SPOT_WITNESSED"
"""Environment variable with the function, ``module:function``."""
TAKES_REQUESTS: Final = "GPU_SPOT_WITNESS_REQUESTS"
"""Environment variable that is 1 if the function gets requests; else it gets their values."""
RECORD: Final = "GPU_SPOT_WITNESS"
"""Environment variable with the file to which runs are appended."""


def run(argument: Request | Sequence[Request]) -> Any:
    """Record the requests and run the function."""
    write_down(argument if isinstance(argument, Sequence) else [argument])
    if os.environ.get(TAKES_REQUESTS) == "1":
        return _function()(argument)
    if isinstance(argument, Sequence):
        return _function()([request.value for request in argument])
    return _function()(argument.value)


def write_down(requests: Sequence[Request]) -> None:
    """Append a line for each request to ``RECORD``'s file in one write, which a kill cannot split."""
    lines = "".join(f"{request.id} {'again' if request.is_repeat else 'first'}\n" for request in requests)
    record = os.open(os.environ[RECORD], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(record, lines.encode())
    os.close(record)


@functools.cache
def _function() -> Callable[[Any], Any]:
    module, _, name = os.environ[FUNCTION].partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Runs:
    """Counts of a record.

    ``unmarked_duplicates`` are requests with more than one run that is not marked as repeat, ``repeated`` the
    runs beyond each request's first, ``came_back`` the requests whose only run is marked as repeat: they were
    requeued, or their worker was lost before the run.
    """

    unmarked_duplicates: int
    repeated: int
    came_back: int


def read(*records: Path) -> Runs:
    """Return the counts over all records; missing files count as empty."""
    lines = [line for record in records if record.exists() for line in record.read_text().splitlines()]
    runs = [line.split(" ") for line in lines]
    firsts = Counter(identity for identity, mark in runs if mark == "first")
    count = Counter(identity for identity, _ in runs)
    return Runs(
        unmarked_duplicates=sum(count_ > 1 for count_ in firsts.values()),
        repeated=len(runs) - len(count),
        came_back=sum(count_ == 1 and identity not in firsts for identity, count_ in count.items()),
    )
