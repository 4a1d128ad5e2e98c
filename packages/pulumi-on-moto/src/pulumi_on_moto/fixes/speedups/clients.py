"""Work of botocore that has the same result for each session, client and response, done once or faster."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

from botocore import utils
from botocore.client import ClientCreator
from botocore.loaders import JSONFileLoader, Loader

from pulumi_on_moto.fixes import Patches, around

_load = JSONFileLoader.load_file
_WRITTEN: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.(\d{3}|\d{6}))?Z", re.ASCII)

_methods: dict[tuple[str, str], dict[str, Any]] = {}
_services: dict[tuple[str, ...], list[str]] = {}


def _created(create: Callable[..., dict[str, Any]], creator: Any, service_model: Any) -> dict[str, Any]:
    """Return a client's methods, which know their operation and not their client."""
    service = (service_model.service_name, service_model.api_version)
    if service not in _methods:
        _methods[service] = create(creator, service_model)
    return dict(_methods[service])


@cache
def _read(path: str) -> Any:
    return _load(JSONFileLoader(), path)


def _listed(names: Callable[..., list[str]], loader: Loader, type_name: str) -> list[str]:
    key = (type_name, *loader.search_paths)
    if key not in _services:
        _services[key] = names(loader, type_name)
    return list(_services[key])


def _parsed(parse: Callable[..., Any], value: Any, tzinfo: Any) -> Any:
    if isinstance(value, str) and _WRITTEN.fullmatch(value):
        return datetime.fromisoformat(value[:-1]).replace(tzinfo=UTC)
    return parse(value, tzinfo)


METHODS_OF_CLIENTS: Final = around(ClientCreator, "_create_methods", _created)
MODELS: Final[Patches] = (
    (JSONFileLoader, "load_file", lambda _, path: _read(path)),
    around(Loader, "list_available_services", _listed),
)
TIMESTAMPS: Final = around(utils, "_parse_timestamp_with_tzinfo", _parsed)
"""Times are read as the one format that moto writes instead of as any."""
