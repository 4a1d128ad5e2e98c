"""What AWS's models call deprecated is an error in every process that tests start, but what stands here.

AWS still takes it, so a sandbox only warns.
"""

from __future__ import annotations

from typing import Final

STILL_USED: Final = {
    "Budget.CostFilters": "its successor, FilterExpression, does not say how a tag's key is written",
    "encryptionConfig[0].resources": "the provider requires it of a cluster",
}
"""Beginnings of warnings, each with the reason why it is used on."""

_WHERE: Final = "DeprecationWarning:pulumi_on_moto.fixes.parameters"
# As `python -W` takes them; the last that fits counts.
FILTERS: Final = ",".join([f"error::{_WHERE}", *(f"ignore:{one}:{_WHERE}" for one in STILL_USED)])
