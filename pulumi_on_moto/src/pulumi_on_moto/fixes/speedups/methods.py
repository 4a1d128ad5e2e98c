"""Check whether a moto class has a method, without listing all its methods for each request."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Final

from moto.core import responses

from pulumi_on_moto.fixes.fix import Patch


@dataclass(frozen=True, slots=True)
class _Methods:
    """Replacement of the list of methods; ``in`` checks a single name."""

    of: type

    def __contains__(self, name: str) -> bool:
        return inspect.isfunction(getattr(self.of, name, None))


METHODS: Final[Patch] = (responses, "method_names_from_class", _Methods)
