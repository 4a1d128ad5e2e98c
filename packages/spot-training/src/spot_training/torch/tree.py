"""A state dict as a tree: its tensors by key, and the same tree with other tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import torch

TreePath: TypeAlias = tuple[Any, ...]
PLACEHOLDER: Final = torch.zeros(1)
"""In a tree without tensors: here is one. Not empty, so that a file has it once."""


def key_of(path: TreePath) -> str:
    """Return the key of a tensor: ``model.0.weight``, ``optimizer.state.3.exp_avg``."""
    return ".".join(map(str, path))


def tensors_of(tree: Any, path: TreePath = ()) -> Iterator[tuple[TreePath, torch.Tensor]]:
    """Yield the tensors of a tree with their paths."""
    if isinstance(tree, torch.Tensor):
        yield path, tree
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from tensors_of(value, (*path, key))
    elif type(tree) in (list, tuple):
        for number, value in enumerate(tree):
            yield from tensors_of(value, (*path, number))


def replaced(tree: Any, change: Callable[[TreePath, torch.Tensor], Any], path: TreePath = ()) -> Any:
    """Return a tree with another value in place of each tensor; its dicts and lists are new."""
    if isinstance(tree, torch.Tensor):
        return change(path, tree)
    if isinstance(tree, dict):  # an OrderedDict of a module carries _metadata, which a shallow copy has
        new = copy.copy(tree)
        for key, value in tree.items():
            new[key] = replaced(value, change, (*path, key))
        return new
    if type(tree) in (list, tuple):
        return type(tree)(replaced(value, change, (*path, number)) for number, value in enumerate(tree))
    return tree


def mapped(tree: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """Return a tree with ``change`` of each tensor in its place."""
    return replaced(tree, lambda _, tensor: change(tensor))


def without_tensors(tree: Any) -> Any:
    """Return a tree with ``PLACEHOLDER`` in place of each tensor."""
    return mapped(tree, lambda _: PLACEHOLDER)
