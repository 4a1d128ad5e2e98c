"""Serialization of the tenant list (S3, ``hosts/<host>/tenants.json``) and of a slice (container label)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

from contracts import codec
from contracts.limits import Length
from contracts.stored import ContractError
from userdata.agent.machine.errors import ConfigError
from userdata.agent.tenants.model import MAX_TENANTS, Slice, Tenant

T = TypeVar("T")


@dataclass(frozen=True)
class _Document:
    tenants: Annotated[tuple[Tenant, ...], Length(0, MAX_TENANTS)]


def key_of(host: str) -> str:
    """Return the S3 key of a host's tenant list in the agent's bucket."""
    return f"hosts/{host}/tenants.json"


def encode(tenants: Sequence[Tenant]) -> str:
    """Return the list as deterministic JSON, without defaults: an unused new key stops no older host."""
    defaults = codec.dump(Tenant("", 0, 0, 0, ""))  # where there is none, a value that is not allowed
    listed = [{k: v for k, v in codec.dump(tenant).items() if v != defaults.get(k)} for tenant in tenants]
    return _text({"tenants": listed})


def decode(text: str) -> tuple[Tenant, ...]:
    """Return the list that ``encode`` wrote.

    Raises:
        ConfigError: invalid JSON, or a key or value that is not allowed.
    """
    return _read(_Document, text, "tenants").tenants


def encode_slice(value: Slice) -> str:
    """Return a slice as one line of text."""
    return _text(value)


def decode_slice(text: str) -> Slice:
    """Return the slice that ``encode_slice`` wrote; raises ``ConfigError`` if invalid."""
    return _read(Slice, text, "slice")


def _text(value: object) -> str:
    return json.dumps(codec.dump(value), sort_keys=True, separators=(",", ":"))


def _read(cls: type[T], text: str, description: str) -> T:
    try:
        return codec.parse(cls, json.loads(text))
    except ContractError as error:
        raise ConfigError(str(error)) from None
    except ValueError as error:
        raise ConfigError(f"{description} is not valid JSON: {error}") from None
