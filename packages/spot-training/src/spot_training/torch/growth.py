"""Parts that change while they are trained: parameter groups that are added, keys, frozen parameters.

A restart begins with the script's first form. What it does at the beginning of the interrupted epoch it does
again; after that the parts are changed to the form of the checkpoint, if they still differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.utils import prune
from torch.optim import Optimizer


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


def flags(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names of frozen parameters and of modules that evaluate or do not follow statistics."""
    result = {}
    for name, part in parts.items():
        if isinstance(part, torch.nn.Module):
            modules = list(part.named_modules())
            result[name] = {
                "frozen": [key for key, value in part.named_parameters() if not value.requires_grad],
                "evaluates": [key for key, module in modules if not module.training],
                "untracked": [
                    key for key, module in modules if not getattr(module, "track_running_stats", 1)
                ],
            }
    return result


def set_flags(parts: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    """Set what ``flags`` returned."""
    for name, part in parts.items():
        if not isinstance(part, torch.nn.Module) or name not in saved:
            continue
        for key, parameter in part.named_parameters():
            if parameter.is_leaf:
                parameter.requires_grad_(key not in saved[name]["frozen"])
        for key, module in part.named_modules():
            module.training = key not in saved[name]["evaluates"]
            if hasattr(module, "track_running_stats"):
                module.track_running_stats = key not in saved[name]["untracked"]


def _parameters(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{name}.{key}": parameter
        for name, part in parts.items()
        if isinstance(part, torch.nn.Module)
        for key, parameter in part.named_parameters()
    }
