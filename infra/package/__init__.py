"""The stack's parts as components for other Pulumi programs, of any language (docs/components.md)."""
