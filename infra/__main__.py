"""Entry point for the Pulumi engine, which runs this file by its path."""

from __future__ import annotations

from infra.stack import declare

declare()
