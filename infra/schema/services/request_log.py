"""Settings of ``services[].scaling.log``: the log of a service's requests."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationInfo, field_validator

from contracts.group import scaling_settings as settings
from infra.schema.base import FROM_TEXT, Model

_BRACKETS: Final = {"{": "}", "[": "]"}
_JSON_FIELD: Final = re.compile(r"\$(\.\w[\w-]*|\[(\d+|'[^']+')\])+")
_UNIT_SECONDS: Final = {"seconds": 1.0, "milliseconds": 0.001}


class RequestLog(Model):
    """The log of a service's requests, by which it scales.

    Patterns are those of CloudWatch Logs metric filters: ``{ $.event = "search" }`` for JSON,
    ``[time, event = search, took]`` for fields between spaces, terms for other text. The log group must have
    events in each minute: without any the load is unknown, and the target is not lowered.
    """

    group: Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[.\-_/#A-Za-z0-9]+$")]
    """Name of the log group: an existing one of the stack's region, of the class Standard."""
    pattern: Annotated[str, Field(min_length=1, max_length=1024)]
    """Pattern of the lines that count as a request each."""
    seconds: Annotated[str, Field(min_length=2, max_length=100)] | None = None
    """Field with the time that a worker needed for a request: ``$.took`` of JSON, ``$took`` of fields between
    spaces. The pattern must name it. Lines without a number are not measured."""
    seconds_pattern: Annotated[str, Field(min_length=3, max_length=1024)] | None = None
    """Pattern of the lines with ``seconds``, if requests are logged when they arrive and again when they end.
    Default: ``pattern``; requests are then counted at their end, and while all workers are busy the scaler
    adds half as many."""
    unit: Literal["seconds", "milliseconds"] = "seconds"
    """Unit of ``seconds``."""
    seconds_per_request: Annotated[float, Field(ge=0.001, le=86400), FROM_TEXT] | None = None
    """Time that the slowest instance type needs for a request, in seconds, if the log does not have it; lines
    are then written when a request arrives."""
    sample: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """Line of a request, with which ``gpu-spot preflight`` tests the pattern. Default: the newest lines."""

    @property
    def contract(self) -> settings.RequestLogSettings:
        """The log in the format of the scaler."""
        return settings.RequestLogSettings(
            self.seconds_per_request,
            _UNIT_SECONDS[self.unit],
            counts_ended=self.seconds is not None and self.seconds_pattern is None,
        )

    @field_validator("pattern", "seconds_pattern")
    @classmethod
    def _is_closed(cls, pattern: str | None) -> str | None:
        text = (pattern or "").strip()
        end = _BRACKETS.get(text[:1])
        if end is not None and not text.endswith(end):
            raise ValueError(f"must end with {end}, as a metric filter pattern does, unlike {pattern}")
        return pattern

    @field_validator("seconds_pattern")
    @classmethod
    def _has_seconds(cls, pattern: str | None, info: ValidationInfo) -> str | None:
        if pattern is not None and info.data.get("seconds", "") is None:
            raise ValueError("is missing; set log.seconds to a field of the pattern")
        if "pattern" in info.data:
            field = info.data.get("seconds")
            reason = _no_field(pattern or info.data["pattern"], field) if field is not None else None
            if reason is not None:
                raise ValueError(f"seconds must be a field of the pattern, not {field}: {reason}")
        return pattern

    @field_validator("seconds_per_request")
    @classmethod
    def _says_the_work(cls, stated: float | None, info: ValidationInfo) -> float | None:
        if "seconds" in info.data and (stated is None) == (info.data["seconds"] is None):
            raise ValueError(
                "must be set if seconds is not, and only then: requests alone do not say how many "
                "workers they need"
            )
        return stated


def _no_field(pattern: str, field: str) -> str | None:
    """Return why a pattern has no such field, None if it has; a value is one of the pattern's fields.

    Source: CloudWatch Logs guide, "Configuring metric values for a metric filter".
    """
    text = pattern.strip()
    if text.startswith("{"):
        if not _JSON_FIELD.fullmatch(field):
            return "it is not a field of JSON; write one such as $.took"
        if field not in _fields_of_json(text):
            return f"it is not in the pattern {text}; use one of its fields (add && {field} = *)"
        return None
    if text.startswith("["):
        fields = [part.split()[0] for part in re.split(r"[,\[\]]|&&|\|\|", text) if part.split()]
        names = [re.split(r"[=!<>]", name)[0] for name in fields]
        if field[1:] not in names or not field.startswith("$"):
            return f"it is not a field of {text}; use {', '.join(f'${n}' for n in names if n.isidentifier())}"
        return None
    return "a pattern of terms has no fields; use { … } for JSON, or [ … ] for fields between spaces"


def _fields_of_json(pattern: str) -> set[str]:
    return {match.group() for match in _JSON_FIELD.finditer(pattern)}
