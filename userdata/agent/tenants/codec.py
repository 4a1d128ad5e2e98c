"""The list of tenants as it lies in S3, ``hosts/<host>/tenants.json``, and a slice as a container's label."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

from contracts import codec
from contracts.limits import Length
from contracts.stored import ContractError
from userdata.agent.machine.errors import ConfigError
from userdata.agent.tenants.model import MOST_TENANTS, Slice, Tenant

T = TypeVar("T")


@dataclass(frozen=True)
class _Document:
    tenants: Annotated[tuple[Tenant, ...], Length(0, MOST_TENANTS)]


def key_of(host: str) -> str:
    """Return the key of a host's list in the bucket that also holds the agent."""
    return f"hosts/{host}/tenants.json"


def encode(tenants: Sequence[Tenant]) -> str:
    """Return the list as text: the same text for the same list."""
    return _text(_Document(tuple(tenants)))


def decode(text: str) -> tuple[Tenant, ...]:
    """Return the list that ``encode`` wrote.

    Raises:
        ConfigError: it is no JSON, or a key or a value is not allowed; the line names it.
    """
    return _read(_Document, text, "tenants").tenants


def encode_slice(one: Slice) -> str:
    """Return a slice as one line of text."""
    return _text(one)


def decode_slice(text: str) -> Slice:
    """Return the slice that ``encode_slice`` wrote; raise ``ConfigError`` for anything else."""
    return _read(Slice, text, "slice")


def _text(value: object) -> str:
    return json.dumps(codec.dump(value), sort_keys=True, separators=(",", ":"))


def _read(cls: type[T], text: str, what: str) -> T:
    try:
        return codec.parse(cls, json.loads(text))
    except ContractError as error:
        raise ConfigError(str(error)) from None
    except ValueError as error:
        raise ConfigError(f"{what}: no JSON: {error}") from None
