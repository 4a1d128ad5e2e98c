"""Work of botocore that has the same result for each session, client and request, done once."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any, Final

from botocore import hooks, useragent
from botocore.client import ClientCreator
from botocore.hooks import EventAliaser

from pulumi_on_moto.fixes.fix import Patch

_alias = EventAliaser.__init__
_create = ClientCreator._create_methods  # type: ignore[attr-defined]
_inspected = hooks.accepts_kwargs
_SANITIZE: Final = "sanitize_user_agent_string_component"

_names: dict[str, str] = {}
_methods: dict[tuple[str, str], dict[str, Any]] = {}


def _aliased(aliaser: Any, event_emitter: Any, event_aliases: dict[str, str] | None = None) -> None:
    """Share the names of events between all sessions with botocore's own aliases."""
    _alias(aliaser, event_emitter, event_aliases)
    if aliaser._event_aliases == hooks.EVENT_ALIASES:
        aliaser._alias_name_cache = _names


def _created(creator: Any, service_model: Any) -> dict[str, Any]:
    """Return a client's methods, which know their operation and not their client."""
    service = (service_model.service_name, service_model.api_version)
    if service not in _methods:
        _methods[service] = _create(creator, service_model)
    return dict(_methods[service])


def _accepts(handler: Any) -> Any:
    """Return whether a handler takes any keyword, from its code: a signature takes long to make."""
    function = getattr(handler, "__func__", handler)
    if inspect.isfunction(function) and not hasattr(function, "__signature__"):
        return bool(function.__code__.co_flags & inspect.CO_VARKEYWORDS)
    return _inspected(handler)


CLIENTS: Final[tuple[Patch, ...]] = (
    (EventAliaser, "__init__", _aliased),
    (ClientCreator, "_create_methods", _created),
    (hooks, "accepts_kwargs", _accepts),
    (useragent, _SANITIZE, cache(getattr(useragent, _SANITIZE))),
)
