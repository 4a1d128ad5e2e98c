"""What each rank writes of a divided state: planned by ``torch.distributed.checkpoint``, once for all ranks.

A part of a DTensor is written by one of the ranks that have it, a parameter that all have by one of them, so
that each rank writes about the same number of bytes. Buffers and other values are those of rank 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch.optim import Optimizer

from spot_training.errors import SpotTrainingError, one_line
from spot_training.torch import state
from spot_training.torch.shards.support import ZeroState, is_dtensor, parameters_of
from spot_training.torch.state import TreePath, key_of, tensors_of, without_tensors

SHARD_FILE: Final = "shard.pt"
"""Of each rank: ``shards``, the pieces of tensors that it wrote, and ``trees``, the state without tensors (of
rank 0, and what a ``ZeroRedundancyOptimizer`` has at each rank). A stored format."""


class DividedState:
    """Chooses what this rank writes; all ranks create it, and call ``content``, at the same step."""

    def __init__(self, parts: Mapping[str, Any], ranks: Any, fingerprint: str) -> None:
        """``parts``: with ``ZeroState``; ``ranks``: ``TorchRanks``; ``fingerprint``: of the parts.

        Raises ``SpotTrainingError``: on all ranks, if the state of one cannot be saved.
        """
        if not hasattr(ranks, "exchange"):
            raise SpotTrainingError(
                f"ranks must be those of torch.distributed with a divided state, not {type(ranks).__name__}"
            )
        self._parts, self._ranks = parts, ranks
        self._structure: list[Any] | None = None
        self._items: list[Any] = []
        fingerprints = ranks.exchange(fingerprint)
        if len(set(fingerprints)) > 1:
            rank = next(rank for rank, value in enumerate(fingerprints) if value != fingerprints[0])
            raise SpotTrainingError(
                f"rank {rank} has other modules than rank 0, as with pipeline parallelism; use the "
                "same names and global shapes at all ranks"
            )
        self._refuse_different()
        try:
            self.content()
        except state.UnsupportedStateError as error:
            raise SpotTrainingError(str(error)) from None

    def _refuse_different(self) -> None:
        """Raise ``SpotTrainingError`` if what one rank would save for all is not the same at all.

        Such as a shard that a script took out of a DTensor. Tried at the start only: redundant computations
        may round differently later.
        """
        checksums = self._ranks.exchange(_checksums(self._parts))
        for rank, values in enumerate(checksums):
            for key, value in values.items():
                if value != checksums[0].get(key, value):
                    raise SpotTrainingError(
                        f"{key} is not a DTensor, and differs between ranks 0 and {rank}; make it the same "
                        "at all ranks, a DTensor, a module's buffer, or a value of Loop.state"
                    )

    def content(self) -> dict[str, Any]:
        """Return this rank's ``SHARD_FILE``, of parts' tensors; ``UnsupportedStateError``: on all ranks."""
        trees, tensors = dict[str, Any](), dict[str, torch.Tensor]()
        structure, problem = list[Any](), ""
        try:
            trees, tensors = self._offered()
            structure = [_structure(key, tensor) for key, tensor in tensors.items()]
        except Exception as error:  # of a part's state_dict; the others must not wait
            problem = one_line(error)
        [is_new] = self._ranks.any(bool(problem) or structure != self._structure)
        if is_new:
            self._agree(tensors, problem)
            self._structure = structure
        planner = _planner(tensors)
        shards = [
            {
                "key": item.index.fqn,
                "size": list(item.tensor_data.size),
                "offsets": list(item.tensor_data.chunk.offsets),
                "is_divided": is_dtensor(tensors[item.index.fqn]),
                "tensor": planner.resolve_data(item),
            }
            for item in self._items
        ]
        return {"trees": trees, "shards": shards}

    def _offered(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """Return the trees of this rank, and the tensors that it could write."""
        trees, tensors = dict[str, Any](), dict[str, torch.Tensor]()
        is_first = self._ranks.rank == 0
        for name, part in self._parts.items():
            part_state = part.state_dict()
            if is_first or isinstance(part, ZeroState):
                trees[name] = without_tensors(part_state)
            is_same = _is_same_at_all_ranks(part)
            parameters = parameters_of(part) if isinstance(part, Optimizer) else None
            for path, tensor in tensors_of(part_state):
                key = key_of((name, *path))
                if parameters is not None:
                    _check_layout(key, tensor, parameters.get(path[:2]))
                if not (is_first or is_dtensor(tensor) or is_same(path)):
                    continue
                if key in tensors:
                    raise ValueError(f"{key} is the name of two tensors")
                tensors[key] = tensor.detach()
        return trees, tensors

    def _agree(self, tensors: Mapping[str, Any], problem: str) -> None:
        """Exchange the ranks' plans; each makes the same division of them."""
        planner, plan = _planner(tensors), None
        if not problem:
            try:
                plan = planner.create_local_plan()
            except Exception as error:
                problem = one_line(error)
        offers = self._ranks.exchange((plan, problem))
        problems = [f"rank {rank}: {text}" for rank, (_, text) in enumerate(offers) if text]
        if not problems:
            try:
                plans, _ = planner.create_global_plan([offer for offer, _ in offers])
                self._items = plans[self._ranks.rank].items
            except (ValueError, AssertionError) as error:  # pieces that overlap, or are missing
                problems = [one_line(error)]
        if problems:
            self._structure = None
            raise state.UnsupportedStateError(f"the divided state cannot be saved: {problems[0]}")


def _planner(tensors: Mapping[str, Any]) -> Any:
    from torch.distributed.checkpoint import DefaultSavePlanner  # not needed for a state that is not divided

    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    planner.set_up_planner(dict(tensors), None, is_coordinator=False)
    return planner


def _structure(key: str, tensor: Any) -> tuple[Any, ...]:
    layout = (str(tensor.placements), tensor.device_mesh.mesh.tolist()) if is_dtensor(tensor) else ()
    return key, tuple(tensor.shape), tensor.dtype, layout


def _is_same_at_all_ranks(part: Any) -> Callable[[TreePath], bool]:
    """Return whether a tensor that is not a DTensor has the same values at all ranks that have it."""
    if isinstance(part, torch.nn.Module):
        names = {name for name, _ in part.named_parameters(remove_duplicate=False)}
        return lambda path: key_of(path) in names
    if isinstance(part, (Optimizer, ZeroState)):
        return lambda path: path[0] == "state"
    return lambda path: False


def _check_layout(key: str, tensor: Any, parameter: Any) -> None:
    """Raise ``ValueError`` for an optimizer's tensor whose division another number of ranks cannot know."""
    if _is_split(parameter) and not is_dtensor(tensor) and tensor.numel() > 1:
        raise ValueError(f"{key} is not a DTensor, but its parameter is; make it one")
    if _is_split(tensor) and (parameter is None or parameter.shape != tensor.shape):
        raise ValueError(
            f"{key} is divided, and has another shape than its parameter; give it the same shape, or the same"
            " values at all ranks"
        )


def _is_split(tensor: Any) -> bool:
    """Return whether ranks have different parts of a tensor."""
    return is_dtensor(tensor) and not all(layout.is_replicate() for layout in tensor.placements)


def _checksums(parts: Mapping[str, Any]) -> dict[str, int]:
    """Return a checksum of each tensor that should be the same at all ranks."""
    result = {}
    for name, part in parts.items():
        is_same = _is_same_at_all_ranks(part)
        is_other_part = not isinstance(part, (torch.nn.Module, Optimizer, ZeroState))
        for path, tensor in tensors_of(part.state_dict()):
            integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
            size = tensor.element_size()
            if not is_dtensor(tensor) and size in integers and (is_other_part or is_same(path)):
                values = tensor.detach().contiguous().flatten().view(integers[size])
                result[key_of((name, *path))] = int(values.sum(dtype=torch.int64))
    return result
