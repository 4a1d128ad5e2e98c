"""Values of the secret variables of a command, read at each of its starts.

Errors name the secret and what is wrong; no value is logged or part of a command line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache

from contracts.agent import secret_sources
from contracts.agent.secret_sources import SecretSource
from contracts.codec import parse
from contracts.limits import EnvironmentValue
from contracts.stored import ContractError
from userdata.agent.machine.errors import AgentError


def read(
    secrets: Mapping[str, str], secret: Callable[[str], str], parameter: Callable[[str], str]
) -> dict[str, str]:
    """Return the values of ``secrets`` by variable.

    Args:
        secrets: references by variable, see `secret_sources`.
        secret: returns the text of a secret in Secrets Manager by its name; raises `AgentError`.
        parameter: the same of a parameter in Parameter Store.

    Raises:
        AgentError: one cannot be read, has no such key, or is empty or has control characters.
    """
    texts = {True: cache(parameter), False: cache(secret)}
    sources = {name: secret_sources.parse(reference) for name, reference in secrets.items()}
    return {name: _value(source, texts[source.is_parameter](source.name)) for name, source in sources.items()}


def _value(source: SecretSource, text: str) -> str:
    value: object = text.rstrip("\r\n")  # of a file or `echo`
    if source.key:
        try:
            value = json.loads(text)[source.key]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise AgentError(f"{source} has no such key; store a JSON object with it") from None
    try:
        if not value or parse(EnvironmentValue, value) != value:
            raise ValueError("empty")
    except (ContractError, ValueError):
        raise AgentError(f"{source} is malformed; store a text without control characters") from None
    return str(value)
