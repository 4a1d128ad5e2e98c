"""AWS's models of its services, which each botocore session and moto read anew; this remembers them."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from botocore.loaders import JSONFileLoader

from pulumi_on_moto.fixes.fix import Patch

_load = JSONFileLoader.load_file


@cache
def _read(path: str) -> Any:
    return _load(JSONFileLoader(), path)


MODELS: Final[Patch] = (JSONFileLoader, "load_file", lambda _, path: _read(path))
