"""The state of a ``ZeroRedundancyOptimizer``: each rank has that of its parameters, and saves it itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.optim import Optimizer


class ZeroState:
    """The ``state_dict`` of this rank's parameters, by the index that they have among all.

    ``ZeroRedundancyOptimizer.state_dict`` would first send all state to one rank (PyTorch, "Distributed
    Optimizers", ``consolidate_state_dict``).
    """

    def __init__(self, zero: Any) -> None:
        self.optimizer = zero

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of all parameters."""
        groups: list[dict[str, Any]] = self.optimizer.param_groups
        return groups

    def state_dict(self) -> dict[str, Any]:
        """Return the groups of all parameters, and the state of those that this rank updates."""
        zero, local = self.optimizer, self.optimizer.optim.state
        state = {index: dict(local[tensor]) for index, tensor in self._parameters() if tensor in local}
        stored = {**Optimizer.state_dict(zero), "state": state}
        # A group that was added later has only in the local optimizer what its class sets.
        pairs = zip(zero.optim.param_groups, stored["param_groups"], strict=True)
        stored["param_groups"] = [{**local_group, **group} for local_group, group in pairs]
        return stored

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state with at least this rank's parameters."""
        self.optimizer.load_state_dict({**state, "state": self.of_this_rank(state["state"])})

    def of_this_rank(self, state: Mapping[int, Any]) -> dict[int, Any]:
        """Return of a state by parameter what this rank updates."""
        local = {id(tensor) for group in self.optimizer.optim.param_groups for tensor in group["params"]}
        mine = (index for index, tensor in self._parameters() if id(tensor) in local)
        return {index: state[index] for index in mine if index in state}

    def _parameters(self) -> list[tuple[int, Any]]:
        return list(enumerate(tensor for group in self.param_groups for tensor in group["params"]))
