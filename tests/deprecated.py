"""Deprecated calls of AWS that tests allow; all others are errors in every process of the tests.

AWS still accepts them, so a sandbox only warns.
"""

from __future__ import annotations

from typing import Final

STILL_USED: Final = {
    "Budget.CostFilters": "the format of a tag's key in its successor, FilterExpression, is not documented",
    "encryptionConfig[0].resources": "the provider requires it of a cluster",
}
"""Beginnings of warnings, each with the reason for its use."""

_WHERE: Final = "DeprecationWarning:pulumi_on_moto.fixes.parameters"
# In the format of `python -W`; the last match applies.
FILTERS: Final = ",".join([f"error::{_WHERE}", *(f"ignore:{message}:{_WHERE}" for message in STILL_USED)])
