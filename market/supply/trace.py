"""Read spot capacity traces: one JSON file is one capacity pool, sampled at a fixed gap.

The format is that of the public ``skypilot-org/spot-traces``:
``{"metadata": {"gap_seconds": G}, "data": [n0, …]}``, optionally with ``prices`` next to ``data``; ``n`` is
the number of instances that the pool can hold at that sample.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeGuard

_FORM: Final = '{"metadata": {"gap_seconds": …}, "data": […]}'


class TraceError(ValueError):
    """A missing, malformed or incompatible trace; the message is one line."""


@dataclass(frozen=True, slots=True)
class PoolTrace:
    """The capacity of one pool over time.

    ``samples[k]`` instances from second ``k × gap_seconds`` on, until the next sample. ``prices`` are US
    dollars an hour, as many as there are samples, or ``None``.
    """

    name: str
    gap_seconds: float
    samples: tuple[int, ...]
    prices: tuple[float, ...] | None = None

    @property
    def seconds(self) -> float:
        """The length of the trace."""
        return self.gap_seconds * len(self.samples)

    def first(self, seconds: float) -> PoolTrace:
        """Return its beginning, or all of it if it is shorter."""
        count = math.ceil(seconds / self.gap_seconds)
        return replace(self, samples=self.samples[:count], prices=self.prices and self.prices[:count])


def load(paths: Iterable[Path | str]) -> tuple[PoolTrace, ...]:
    """Return the pools of the given files, and of every ``*.json`` in the given folders, in order of name.

    Raises ``TraceError`` if a file is missing or malformed, or if the gaps differ.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            traces = sorted(path.glob("*.json"))
            if not traces:
                raise TraceError(f"trace folder {path} holds no .json file; add one")
            files.extend(traces)
        elif path.is_file():
            files.append(path)
        else:
            raise TraceError(f"trace {path} does not exist; name a file or a folder of .json files")
    pools = tuple(_read(file) for file in files)
    check(pools)
    return pools


def check(pools: Sequence[PoolTrace]) -> None:
    """Raise ``TraceError`` unless there is at least one pool and all have the same gap."""
    if not pools:
        raise TraceError("no trace is given; name one for each pool")
    gaps = {pool.gap_seconds for pool in pools}
    if len(gaps) > 1:
        listed = ", ".join(f"{gap:g} s" for gap in sorted(gaps))
        raise TraceError(f"traces have different gaps ({listed}); use traces with one gap")


def _read(file: Path) -> PoolTrace:
    try:
        raw: Any = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise TraceError(f"trace {file} cannot be read ({error.strerror}); it must be {_FORM}") from None
    except UnicodeDecodeError:
        raise TraceError(f"trace {file} is not UTF-8 text; it must be {_FORM}") from None
    except ValueError as error:
        raise TraceError(f"trace {file} is not JSON ({error}); it must be {_FORM}") from None
    if not isinstance(raw, dict):
        raise TraceError(f"trace {file} must be {_FORM}, not a JSON {type(raw).__name__}")
    metadata = raw.get("metadata")
    gap = metadata.get("gap_seconds") if isinstance(metadata, dict) else None
    if not _number(gap) or gap <= 0:
        raise TraceError(f"trace {file}: metadata.gap_seconds must be a positive number, not {gap!r}")
    data = raw.get("data")
    if not isinstance(data, list) or not data:
        raise TraceError(f"trace {file}: data must be a list of at least one sample, not {_short(data)}")
    for index, sample in enumerate(data):
        if not _number(sample) or sample < 0 or sample != int(sample):
            raise TraceError(f"trace {file}: data[{index}] must be a whole number ≥ 0, not {sample!r}")
    return PoolTrace(
        file.stem, float(gap), tuple(map(int, data)), _prices(file, raw.get("prices"), len(data))
    )


def _prices(file: Path, raw: Any, samples: int) -> tuple[float, ...] | None:
    if raw is None:
        return None
    if not isinstance(raw, list) or len(raw) != samples:
        raise TraceError(f"trace {file}: prices must be a list of {samples} numbers, not {_short(raw)}")
    for index, price in enumerate(raw):
        if not _number(price) or price < 0:
            raise TraceError(f"trace {file}: prices[{index}] must be a number ≥ 0, not {price!r}")
    return tuple(map(float, raw))


def _number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _short(value: Any) -> str:
    return f"a list of {len(value)}" if isinstance(value, list) else repr(value)
