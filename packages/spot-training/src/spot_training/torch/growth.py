"""Parts that change while they are trained: groups that are added, keys, frozen parameters, attributes.

A restart begins with the script's first form. What it does at the beginning of the interrupted epoch it does
again; after that the parts are changed to the form of the checkpoint, if they still differ.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch.nn.utils import prune
from torch.optim import Optimizer

from spot_training.attributes import plain
from spot_training.torch.loaders.samples import digest
from spot_training.torch.tree import mapped, tensors_of

_MAX_ELEMENTS: Final = 1 << 16
"""A larger tensor is not a value that a training counts or averages."""


def form(part: Any, stored: Any = None) -> Any:
    """Return what a part and its state, ``stored``, have in common: a module's keys, the sizes of groups."""
    if isinstance(part, torch.nn.Module):
        return sorted(part.state_dict() if stored is None else stored)
    if isinstance(part, Optimizer):
        groups = part.param_groups if stored is None else stored["param_groups"]
        return [len(group["params"]) for group in groups]
    return None


def group_names(part: Any, parts: Mapping[str, Any]) -> list[list[str]] | None:
    """Return the names of the parameters in each group of an optimizer; empty for one of no part."""
    if not isinstance(part, Optimizer):
        return None
    names = {id(parameter): name for name, parameter in _parameters(parts).items()}
    return [[names.get(id(value), "") for value in group["params"]] for group in part.param_groups]


def grow(part: Any, stored: Any, groups: list[list[str]] | None, parts: Mapping[str, Any]) -> None:
    """Give a part the form of its stored state, as far as it is known how."""
    if isinstance(part, torch.nn.Module):
        for name in [key.removesuffix("_orig") for key in stored if key.endswith("_orig")]:
            owner, _, parameter = name.rpartition(".")
            if f"{name}_mask" in stored and name in dict(part.named_parameters()):
                prune.custom_from_mask(part.get_submodule(owner), parameter, stored[f"{name}_mask"])
    elif isinstance(part, Optimizer) and groups is not None:
        parameters = _parameters(parts)
        for names in groups[len(part.param_groups) :]:
            if all(name in parameters for name in names):
                part.add_param_group({"params": [parameters[name] for name in names]})


def module_attributes(parts: Mapping[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return copies of plain attributes and small tensors that modules have beside their state."""
    return {
        name: {key: copy.deepcopy(_attributes(module)) for key, module in part.named_modules()}
        for name, part in _modules(parts).items()
    }


def flags(parts: Mapping[str, Any], first: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names of frozen parameters, and the attributes of modules that differ from ``first``.

    ``first``: ``module_attributes`` at the start. So a temperature or whether it evaluates is resumed.
    """
    result = {}
    for part_name, part in _modules(parts).items():
        attributes = {}
        for key, module in part.named_modules():
            before, now = first.get(part_name, {}).get(key, {}), _attributes(module).items()
            attributes[key] = {
                name: value for name, value in now if name not in before or not _is_same(value, before[name])
            }
        result[part_name] = {
            "frozen": [key for key, value in part.named_parameters() if not value.requires_grad],
            "attributes": {key: changed for key, changed in attributes.items() if changed},
        }
    return result


def set_flags(parts: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    """Set what ``flags`` returned."""
    for name, part in _modules(parts).items():
        if name not in saved:
            continue
        for key, parameter in part.named_parameters():
            if parameter.is_leaf:
                parameter.requires_grad_(key not in saved[name]["frozen"])
        for key, module in part.named_modules():
            parameters = dict(module.named_parameters(recurse=False))
            for attribute, value in saved[name]["attributes"].get(key, {}).items():
                if attribute in parameters:
                    continue  # a weight that is pruned later, and follows from the parameter until then
                setattr(module, attribute, placed(value, getattr(module, attribute, None)))


def placed(value: Any, now: Any) -> Any:
    """Return a copy of a saved value, its tensors on the device of those of the present one."""
    device = next((tensor.device for _, tensor in tensors_of(now)), None)
    return mapped(value, lambda tensor: tensor.to(device, copy=True))


def _attributes(module: torch.nn.Module) -> dict[str, Any]:
    unsaved = {name: module._buffers[name] for name in module._non_persistent_buffers_set}
    return {
        name: value
        for name, value in (plain(module, torch.Tensor) | unsaved).items()
        if all(tensor.numel() <= _MAX_ELEMENTS for _, tensor in tensors_of(value))
    }


def _is_same(value: Any, before: Any) -> bool:
    is_scalar = isinstance(value, (bool, int, float, str, type(None)))
    return bool(value == before) if is_scalar else digest(value) == digest(before)


def _parameters(parts: Mapping[str, Any]) -> dict[str, Any]:
    modules = _modules(parts).items()
    return {f"{name}.{key}": entry for name, part in modules for key, entry in part.named_parameters()}


def _modules(parts: Mapping[str, Any]) -> dict[str, torch.nn.Module]:
    return {name: part for name, part in parts.items() if isinstance(part, torch.nn.Module)}
