"""What versions side by side read of each other: rows that are shorter or longer, keys of a later version."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import contracts
import lambdas.core
from contracts import codec
from contracts.registry.item import Worker
from contracts.stored import STRICT, ContractError
from contracts.stored_fields import fields_of
from tests.contracts import examples, test_http_stored


def found_in(value: object) -> Iterator[Any]:
    """Yield the dataclasses in a value, at any depth."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield value
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    if isinstance(value, Mapping):
        value = [*value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        for one in value:
            yield from found_in(one)


STORED = {type(one): one for one in found_in([*vars(examples).values(), *vars(test_http_stored).values()])}
ROWS = {cls for cls in STORED if fields_of(cls).form.is_list}
OPEN = {cls for cls in STORED if fields_of(cls).form.is_open} - {Worker}


def declared() -> set[type[Any]]:
    """Return the dataclasses whose form is a list, of all modules that write or read texts."""
    for package in (contracts, lambdas.core):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    modules = [vars(one) for name, one in [*sys.modules.items()] if name.startswith(("contracts", "lambdas"))]
    kinds = {one for module in modules for one in module.values() if isinstance(one, type)}
    return {
        one
        for one in kinds
        if dataclasses.is_dataclass(one) and getattr(one, "__stored_as__", STRICT).is_list
    }


def test_each_row_has_an_example() -> None:
    assert declared() - ROWS == set()


@pytest.mark.parametrize("cls", sorted(ROWS, key=lambda cls: cls.__name__), ids=lambda cls: cls.__name__)
def test_a_row_of_an_earlier_and_of_a_later_version_is_read(cls: type[Any]) -> None:
    row, required = codec.dump(STORED[cls]), len(fields_of(cls).required)
    assert codec.parse(cls, [*row, "of a later version"]) == STORED[cls]
    for length in range(required, len(row)):
        shorter = codec.parse(cls, row[:length])
        assert [*codec.dump(shorter)][:length] == row[:length]
    if required:
        with pytest.raises(ContractError):
            codec.parse(cls, row[: required - 1])


@pytest.mark.parametrize("cls", sorted(OPEN, key=lambda cls: cls.__name__), ids=lambda cls: cls.__name__)
def test_a_text_with_a_key_of_a_later_version_is_read(cls: type[Any]) -> None:
    assert codec.parse(cls, {**codec.dump(STORED[cls]), "later": 1}) == STORED[cls]
