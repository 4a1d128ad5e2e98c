"""Restores a state from the pieces that any number of ranks wrote, at any number of ranks.

Each rank reads of each tensor what it needs, from files that are mapped into memory: those of all ranks, or
the one of rank 0 if the state was not divided. ``torch.distributed.checkpoint`` plans the reads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from spot_training.errors import MismatchError, SpotTrainingError, one_line
from spot_training.storage.manifest import Checkpoint, part_of
from spot_training.torch import state
from spot_training.torch.shards.saving import SHARD_FILE
from spot_training.torch.shards.support import ZeroState, is_dtensor, parameters_of
from spot_training.torch.state import key_of, replaced, tensors_of, without_tensors


class StoredShards:
    """The state of all parts in a checkpoint: its tensors in pieces, and the rest of it."""

    def __init__(self, trees: Mapping[str, Any]) -> None:
        """``trees``: by part, with ``PLACEHOLDER`` for each tensor."""
        self.trees = dict(trees)
        self.divided: set[str] = set()
        """Keys of what was a DTensor."""
        self.sizes: dict[str, torch.Size] = {}
        """Shapes of whole tensors, by key."""
        self._pieces: dict[str, dict[tuple[int, ...], torch.Tensor]] = {}

    @classmethod
    def read(cls, folder: Path, ranks: int) -> StoredShards:
        """Return a divided state of so many ranks, as pages of files; ``MismatchError``: a piece is gone."""
        files = [state.read(folder / part_of(rank) / SHARD_FILE, is_mapped=True) for rank in range(ranks)]
        stored = cls(files[0]["trees"])
        for file in files[1:]:
            for name, tree in file["trees"].items():  # of a ZeroRedundancyOptimizer
                stored.trees[name]["state"] |= tree["state"]
        for shard in (shard for file in files for shard in file["shards"]):
            stored._add(shard["key"], shard["size"], shard["offsets"], shard["tensor"])
            if shard["is_divided"]:
                stored.divided.add(shard["key"])
        for key, size in stored.sizes.items():
            if sum(piece.numel() for piece in stored._pieces[key].values()) != math.prod(size):
                raise MismatchError(f"{folder}: a piece of {key} is missing")
        return stored

    @classmethod
    def of_whole(cls, parts: Mapping[str, Any]) -> StoredShards:
        """Return a state that is not divided as pieces: each tensor is one."""
        stored = cls({name: without_tensors(part_state) for name, part_state in parts.items()})
        for path, tensor in tensors_of(dict(parts)):
            stored._add(key_of(path), tensor.shape, [0] * tensor.dim(), tensor)
        return stored

    def _add(self, key: str, size: Any, offsets: Any, tensor: torch.Tensor) -> None:
        self.sizes[key] = torch.Size(size)
        self._pieces.setdefault(key, {})[tuple(offsets)] = tensor

    def dtype(self, key: str) -> torch.dtype:
        """Return a tensor's type."""
        return next(iter(self._pieces[key].values())).dtype

    def fill(self, targets: Mapping[str, torch.Tensor]) -> None:
        """Write into each tensor, a DTensor or a whole one, what this rank has of it.

        Raises:
            ValueError: another shape.
            RuntimeError: it is not stored.
        """
        from torch.distributed.checkpoint import DefaultLoadPlanner

        planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
        planner.set_up_planner(dict(targets), self._metadata(targets), is_coordinator=False)
        with torch.no_grad():
            for item in planner.finish_plan(planner.create_local_plan()).items:
                piece = self._pieces[item.storage_index.fqn][tuple(item.storage_index.offset)]
                bounds = zip(item.storage_offsets, item.lengths, strict=True)
                for dimension, (begin, length) in enumerate(bounds):
                    piece = piece.narrow(dimension, begin, length)
                planner.resolve_tensor(item).detach().copy_(piece)

    def _metadata(self, keys: Mapping[str, Any]) -> Any:
        from torch.distributed.checkpoint import metadata

        def of(key: str) -> Any:
            chunks = [
                metadata.ChunkStorageMetadata(torch.Size(offsets), piece.shape)
                for offsets, piece in self._pieces[key].items()
            ]
            properties = metadata.TensorProperties(dtype=self.dtype(key))
            return metadata.TensorStorageMetadata(properties, self.sizes[key], chunks)

        return metadata.Metadata({key: of(key) for key in keys if key in self._pieces})


def has_shards(folder: Path) -> bool:
    """Return whether the checkpoint in a directory has a divided state."""
    return (folder / part_of(0) / SHARD_FILE).exists()


def load_shards(parts: Mapping[str, Any], saved: Checkpoint, whole_file: str, *, is_divided: bool) -> None:
    """Load the state of all parts; no tensor stays in a file.

    ``parts``: with ``ZeroState``; ``whole_file``: of rank 0, if the checkpoint's state is not divided;
    ``is_divided``: whether this process divides its state.

    Raises ``MismatchError``: a part is missing or does not fit.
    """
    if has_shards(saved.path):
        stored = StoredShards.read(saved.path, saved.world_size)
    else:
        stored = StoredShards.of_whole(state.read(saved.part(0) / whole_file, is_mapped=True))
    for name, part in parts.items():
        try:
            _load(name, part, stored, is_divided=is_divided)
        except (KeyError, ValueError, RuntimeError, TypeError, AttributeError) as error:
            raise MismatchError(f"{saved.path}: {name} cannot be loaded: {one_line(error)}") from error


def _load(name: str, part: Any, stored: StoredShards, *, is_divided: bool) -> None:
    tree = state.copy_to_cpu(stored.trees[name])
    if isinstance(part, ZeroState):
        tree["state"] = part.of_this_rank(tree["state"])
    present, parameters, targets = dict(tensors_of(part.state_dict())), parameters_of(part), {}
    for path, _ in tensors_of(tree):
        key = key_of((name, *path))
        tensor: Any = present.get(path)
        is_present = tensor is not None and tensor.shape == stored.sizes[key]
        if not is_present or not (isinstance(part, torch.nn.Module) or tensor.dtype == stored.dtype(key)):
            tensor = _new(key, stored, parameters.get(path[:2]), is_divided=is_divided)
        targets[path] = tensor
    stored.fill({key_of((name, *path)): tensor for path, tensor in targets.items()})
    part.load_state_dict(replaced(tree, lambda path, _: targets[path]))


def _new(key: str, stored: StoredShards, parameter: Any, *, is_divided: bool) -> Any:
    """Return a tensor of the stored shape, divided among the ranks as ``parameter`` is, if it fits."""
    size, dtype = stored.sizes[key], stored.dtype(key)
    if parameter is not None and parameter.shape == size:
        return torch.empty_like(parameter.detach(), dtype=dtype)
    local = parameter.to_local() if is_dtensor(parameter) else parameter
    new = torch.empty(size, dtype=dtype, device=None if local is None or not size else local.device)
    if key not in stored.divided or not is_divided:
        return new
    if not is_dtensor(parameter):
        raise ValueError(f"{key} was divided among ranks, and here is no tensor of that shape")
    from torch.distributed.tensor import DTensor, Replicate

    mesh = parameter.device_mesh
    return DTensor.from_local(new, mesh, [Replicate()] * mesh.ndim, run_check=False)


def export_part(folder: Path, ranks: int, destination: Path, part: str) -> None:
    """Write a part's ``state_dict`` with whole tensors; ``folder``: of a checkpoint of so many ranks."""
    stored = StoredShards.read(folder, ranks) if has_shards(folder) else None
    parts = state.read(folder / part_of(0) / "parts.pt") if stored is None else stored.trees
    if part not in parts:
        raise SpotTrainingError(f"part {part!r} does not exist; use {' or '.join(sorted(parts))}")
    tree = parts[part]
    if stored is not None:
        keys = {path: key_of((part, *path)) for path, _ in tensors_of(tree)}
        tensors = {key: torch.empty(stored.sizes[key], dtype=stored.dtype(key)) for key in keys.values()}
        stored.fill(tensors)
        tree = replaced(tree, lambda path, _: tensors[keys[path]])
    torch.save(tree, destination)
