"""Show a deployment as ``pulumi up`` does: a tree of resources, then outputs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from pulumi_on_moto.program.deployment import Deployment
from pulumi_on_moto.program.monitor import Resource


def tree(deployment: Deployment) -> RenderableType:
    """Return the tree of a deployment's resources with its outputs below, for ``rich.print``."""
    root = _root(deployment)
    _grow(root, "", _children(deployment))
    table = Table.grid(padding=(0, 2))
    for name, value in sorted(deployment.outputs.items()):
        table.add_row(
            Text(f"  {name}", style="bold"),
            Text("[secret]" if name in deployment.secret_outputs else _shown(value)),
        )
    return Group(root, Text("\nOutputs:", style="bold"), table)


def outline(deployment: Deployment) -> RenderableType:
    """Return the tree of the stack's direct children, each with its number of resources."""
    root, children = _root(deployment), _children(deployment)
    for top in _sorted(children.get("", [])):
        label = _label(top.type, top.name, "")
        if top.is_component:
            count = _count(top.urn, children)
            label.append(f"  {count} resource{'' if count == 1 else 's'}", style="dim")
        root.add(label)
    return root


def _root(deployment: Deployment) -> Tree:
    return Tree(_label("pulumi:pulumi:Stack", f"{deployment.project}-{deployment.stack}", ""))


def _children(deployment: Deployment) -> dict[str, list[Resource]]:
    """Return resources by their parent's URN, empty without a known parent."""
    children: dict[str, list[Resource]] = {}
    urns = {resource.urn for resource in deployment.resources}
    for resource in deployment.resources:
        parent = resource.parent if resource.parent in urns else ""
        children.setdefault(parent, []).append(resource)
    return children


def _count(urn: str, children: Mapping[str, list[Resource]]) -> int:
    """Return the number of resources below, without components."""
    return sum((not child.is_component) + _count(child.urn, children) for child in children.get(urn, []))


def _sorted(resources: Iterable[Resource]) -> list[Resource]:
    return sorted(resources, key=lambda item: (not item.is_component, item.type, item.name))


def _grow(node: Tree, urn: str, children: Mapping[str, list[Resource]]) -> None:
    for resource in _sorted(children.get(urn, [])):
        _grow(node.add(_label(resource.type, resource.name, resource.id)), resource.urn, children)


def _label(type_: str, name: str, identity: str) -> Text:
    package, _, rest = type_.partition(":")
    # Pulumi shows aws:ec2/vpc:Vpc as aws:ec2:Vpc.
    module, _, kind = rest.partition(":")
    text = Text("+ ", style="green")
    text.append(f"{package}:{module.partition('/')[0]}:{kind}", style="default")
    text.append(f"  {name}", style="bold")
    if identity and identity != name:
        text.append(f"  {identity}", style="dim")
    return text


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
