"""The list of tenants as it lies in S3, ``hosts/<host>/tenants.json``, and a slice as a container's label."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from userdata.agent.config import strict
from userdata.agent.config.limits import Length
from userdata.agent.machine.errors import ConfigError
from userdata.agent.tenants.model import MOST_TENANTS, Slice, Tenant


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
    return strict.parse(_Document, _json(text, "tenants")).tenants


def encode_slice(one: Slice) -> str:
    """Return a slice as one line of text."""
    return _text(one)


def decode_slice(text: str) -> Slice:
    """Return the slice that ``encode_slice`` wrote; raise ``ConfigError`` for anything else."""
    return strict.parse(Slice, _json(text, "slice"))


def _text(value: object) -> str:
    return json.dumps(strict.dump(value), sort_keys=True, separators=(",", ":"))


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{what}: no JSON: {error}") from None
