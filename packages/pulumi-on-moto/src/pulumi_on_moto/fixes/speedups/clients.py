"""Work of botocore that has the same result for each session, client and response, done once or faster."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

from botocore import utils
from botocore.client import ClientCreator
from botocore.loaders import JSONFileLoader, Loader

from pulumi_on_moto.fixes import Patch

_create = ClientCreator._create_methods  # type: ignore[attr-defined]
_load = JSONFileLoader.load_file
_list = Loader.list_available_services
_WRITTEN: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.(\d{3}|\d{6}))?Z", re.ASCII)
_PARSE: Final = "_parse_timestamp_with_tzinfo"
_parse = getattr(utils, _PARSE)

_methods: dict[tuple[str, str], dict[str, Any]] = {}


def _created(creator: Any, service_model: Any) -> dict[str, Any]:
    """Return a client's methods, which know their operation and not their client."""
    service = (service_model.service_name, service_model.api_version)
    if service not in _methods:
        _methods[service] = _create(creator, service_model)
    return dict(_methods[service])


@cache
def _read(path: str) -> Any:
    return _load(JSONFileLoader(), path)


@cache
def _listed(type_name: str, *search_paths: str) -> list[str]:
    loader = Loader(include_default_search_paths=False)
    loader.search_paths.extend(search_paths)
    names: list[str] = _list(loader, type_name)
    return names


def _services(loader: Loader, type_name: str) -> list[str]:
    return list(_listed(type_name, *loader.search_paths))


def _parsed(value: Any, tzinfo: Any) -> datetime:
    if isinstance(value, str) and _WRITTEN.fullmatch(value):
        return datetime.fromisoformat(value[:-1]).replace(tzinfo=UTC)
    parsed: datetime = _parse(value, tzinfo)
    return parsed


METHODS_OF_CLIENTS: Final[Patch] = (ClientCreator, "_create_methods", _created)
MODELS: Final[tuple[Patch, ...]] = (
    (JSONFileLoader, "load_file", lambda _, path: _read(path)),
    (Loader, "list_available_services", _services),
)
TIMESTAMPS: Final[Patch] = (utils, _PARSE, _parsed)
"""Times are read as the one format that moto writes instead of as any."""
