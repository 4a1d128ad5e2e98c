"""Cache of botocore's service models, which every session and moto would load again."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from botocore.loaders import JSONFileLoader, Loader

from pulumi_on_moto.fixes.fix import Patch

_load = JSONFileLoader.load_file
_list = Loader.list_available_services


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


MODELS: Final[tuple[Patch, ...]] = (
    (JSONFileLoader, "load_file", lambda _, path: _read(path)),
    (Loader, "list_available_services", _services),
)
