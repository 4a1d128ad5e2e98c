"""Pulumi components for programs in any language (docs/components.md)."""
