"""The methods by which moto answers a service's operations, remembered: it lists them for every call."""

from __future__ import annotations

from functools import cache
from typing import Final

from moto.core import responses
from moto.core.utils import method_names_from_class

from pulumi_on_moto.fixes.fix import Patch

OPERATIONS: Final[Patch] = (responses, "method_names_from_class", cache(method_names_from_class))
