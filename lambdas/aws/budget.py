"""The time and pages that a pass over a stack may use."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

MAX_PAGES: Final = 64
"""Maximum pages per kind of records: a page holds 1,000 instances, or 1 MB of the worker registry."""

_Page = TypeVar("_Page")


class BudgetError(RuntimeError):
    """The pass ended, or there was too much to read; the message names the records."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The time until ``ends_at`` by ``clock`` (epoch seconds)."""

    ends_at: float
    clock: Callable[[], float]

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return self.clock() >= self.ends_at

    def check(self, records: str) -> None:
        """Raise ``BudgetError`` if the time is over; ``records`` names what was read."""
        if self.is_over:
            raise BudgetError(f"the pass ended while reading its {records}")

    def pages(self, records: str, pages: Iterable[_Page], max_pages: float = MAX_PAGES) -> Iterator[_Page]:
        """Yield pages of records; raise ``BudgetError`` if there are too many, or the time is over."""
        for number, page in enumerate(pages, start=1):
            if number > max_pages:
                raise BudgetError(f"more than {max_pages} pages of {records}")
            self.check(records)
            yield page


UNLIMITED: Final = Budget(math.inf, lambda: 0.0)
"""No limit."""
