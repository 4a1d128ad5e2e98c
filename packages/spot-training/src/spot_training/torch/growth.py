"""Parts that are loaded from a checkpoint, also where they have changed while they were trained.

A restart begins with the script's first form: without groups that were added, keys, frozen parameters,
attributes. What it does at the beginning of the interrupted epoch it does again; after that the parts are
changed to the form of the checkpoint, if they still differ.

The file is mapped into memory: the ranks of a machine share its pages. So no rank needs host memory for a
second copy of the state, and the pages that rank 0 has read to compare the checksum are not read again.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch.nn.utils import prune
from torch.optim import Optimizer

from spot_training.attributes import is_plain, plain
from spot_training.errors import MismatchError, one_line
from spot_training.torch import state
from spot_training.torch.loaders.samples import digest
from spot_training.torch.state import mapped, tensors_of

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


def load_parts(
    parts: Mapping[str, Any], file: Path, grown: Mapping[str, Any], *, has_started: bool
) -> dict[str, Any]:
    """Load the state of all parts from the file of rank 0; no tensor stays in the file.

    ``grown``: parts whose form had changed since the script's start; before the script has begun its epoch
    those that still differ are returned, and not loaded.

    Raises ``MismatchError``: a part is missing or does not fit.
    """
    stored = state.read(file, is_mapped=True)
    in_file = {tensor.untyped_storage().data_ptr() for _, tensor in tensors_of(stored)}

    def leave(tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor outside the file."""
        return tensor.clone() if tensor.untyped_storage().data_ptr() in in_file else tensor

    later = {}
    for name, part in sorted(parts.items(), key=lambda item: not isinstance(item[1], torch.nn.Module)):
        try:
            if isinstance(part, torch.nn.Module):
                stored[name] = _with_names_of(part, stored[name])
            if name in grown and form(part) != form(part, stored[name]):
                if not has_started:
                    later[name] = grown[name]
                    continue
                _grow(part, stored[name], grown[name], parts)
            _load(part, stored[name], leave)
        except (KeyError, ValueError, RuntimeError, TypeError) as error:
            line = f"{file.parent.parent}: {name} cannot be loaded: {one_line(error)}"
            raise MismatchError(line) from error
    return later


def _with_names_of(module: torch.nn.Module, stored: Any) -> Any:
    """Return a stored state with a module's names: of another number of GPUs it has other wrappers inside."""
    names = state.clean_names(module)
    present = {clean: key for key, clean in names.items()}
    if all(key in names for key in stored):
        return stored

    def renamed(key: str) -> str:
        plain = key.replace("_orig_mod.", "")
        return key if key in names else present.get(plain, present.get(plain.replace("module.", ""), key))

    return {renamed(key): value for key, value in stored.items()}


def _load(part: Any, stored: Any, leave: Callable[[Any], Any]) -> None:
    if isinstance(part, torch.nn.Module):
        for key in stored:
            if key.endswith("_extra_state"):  # the module may hold it; parameters and buffers are copied
                stored[key] = state.copy_to_cpu(stored[key])
        part.load_state_dict(stored)
        for tensor in (*part.parameters(), *part.buffers()):
            data = tensor.data
            if (copy := leave(data)) is not data:  # a module may assign instead
                tensor.data = copy
    elif isinstance(part, Optimizer):
        part.load_state_dict(stored)
        for key, value in part.state.items():
            part.state[key] = mapped(value, leave)
    else:
        part.load_state_dict(state.copy_to_cpu(stored))


def group_names(part: Any, parts: Mapping[str, Any]) -> list[list[str]] | None:
    """Return the names of the parameters in each group of an optimizer; empty for one of no part."""
    if not isinstance(part, Optimizer):
        return None
    names = {id(parameter): name for name, parameter in _parameters(parts).items()}
    return [[names.get(id(value), "") for value in group["params"]] for group in part.param_groups]


def _grow(part: Any, stored: Any, groups: list[list[str]] | None, parts: Mapping[str, Any]) -> None:
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


def rates(optimizer: Any) -> list[dict[str, Any]]:
    """Return the plain values of an optimizer's groups: rates, decay, momentum."""
    groups = [{**group, "params": None} for group in optimizer.param_groups]
    return [
        {name: value for name, value in group.items() if is_plain(value, torch.Tensor)} for group in groups
    ]


def set_rates(optimizer: Any, saved: Sequence[Mapping[str, Any]]) -> None:
    """Set what ``rates`` returned."""
    for group, values in zip(optimizer.param_groups, saved, strict=False):
        group.update({**values, "params": group["params"]})


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
