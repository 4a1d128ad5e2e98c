"""The stand-in for ``kubernetes``: an API server's validation and immutable fields, without a cluster."""

from __future__ import annotations

from importlib import metadata
from typing import Any, Final

from packages.pulumi_standins.server import Provider
from packages.pulumi_standins.values import Path, has_unknown
from packages.pulumi_standins.world import World
from pulumi_on_moto.cluster import rules

VERSION: Final = "1.33"
"""Version of the schemas that objects are checked against."""
_HELM: Final = "kubernetes:helm.sh/"
# pulumi-kubernetes, provider/pkg/provider/diff.go: of every object.
_IDENTITY: Final[tuple[Path, ...]] = (
    ("apiVersion",),
    ("kind",),
    ("metadata", "name"),
    ("metadata", "namespace"),
)


class Kubernetes(Provider):
    """A cluster that accepts what its API server would."""

    version = metadata.version("pulumi-kubernetes")

    def check(self, token: str, inputs: dict[str, Any]) -> list[tuple[str, str]]:
        if token.startswith(_HELM) or has_unknown(inputs):
            return []
        reason = rules.invalid(inputs, VERSION)
        return [("", reason)] if reason else []

    def forces_replacement(self, world: World, token: str, inputs: dict[str, Any], path: Path) -> bool:
        if token.startswith(_HELM):
            return path[0] in ("name", "namespace")
        return path[:2] in _IDENTITY or path[:1] in _IDENTITY or rules.immutable(inputs, path)

    def outputs(self, token: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        header = inputs if token.startswith(_HELM) else inputs["metadata"]
        physical = str(header.get("name", name))
        namespace = header.get("namespace")
        return f"{namespace}/{physical}" if namespace else physical, {"status": {}}
