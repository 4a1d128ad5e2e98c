"""README tells of all that the package has."""

from __future__ import annotations

from pathlib import Path

import pulumi_on_moto

PACKAGE = Path(__file__).parents[1]
README = (PACKAGE / "README.md").read_text("utf-8")


def test_every_name_of_the_surface_is_there_and_mentioned() -> None:
    assert not [name for name in pulumi_on_moto.__all__ if getattr(pulumi_on_moto, name).__name__ != name]
    assert not [name for name in pulumi_on_moto.__all__ if f"`{name}" not in README]
