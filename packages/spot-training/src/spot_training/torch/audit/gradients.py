"""Gradients that no optimizer has used yet: they are in no checkpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch.optim import Optimizer

_SAMPLED: Final = 4
"""Parameters of each optimizer that are observed, first and last ones among them."""


class PendingGradients:
    """Observes, by hooks, whether gradients were computed since the last step of an optimizer or a scaler."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        owners = [owner for part in parts.values() for owner in (part, getattr(part, "optimizer", None))]
        optimizers = {id(owner): owner for owner in owners if isinstance(owner, Optimizer)}.values()
        self._parts, self._has_gradients = parts, False
        self.steps = 0
        """Of all optimizers."""
        self.is_known = bool(optimizers)
        """Whether there is an optimizer."""
        self._sampled: list[torch.Tensor] = []
        for optimizer in optimizers:
            trained = [value for group in optimizer.param_groups for value in group["params"]]
            kinds = (torch.Tensor, torch.nn.Parameter)  # not those that are divided among ranks
            trained = [value for value in trained if type(value) in kinds and value.requires_grad]
            self._sampled += [*trained[:: len(trained) // _SAMPLED + 1], *trained[-1:]]
            with contextlib.suppress(AttributeError, KeyError):  # a wrapper: it steps another one
                optimizer.register_step_post_hook(self._after_step)
        for value in self._sampled:
            value.register_post_accumulate_grad_hook(self._after_gradient)
        for scaler in (part for part in parts.values() if isinstance(part, torch.amp.GradScaler)):
            vars(scaler)["step"] = self._counted(scaler.step)  # it skips a step with an overflow

    def marks(self) -> list[Any]:
        """Return what a step changes, the number of steps first; then what else changes in a training."""
        return [self.steps, *versions_of(self._parts)]

    def are_pending(self) -> bool:
        """Return whether a restart would lose gradients; those that were set to 0 count as none."""
        gradients = [value.grad for value in self._sampled if value.grad is not None]
        return self._has_gradients and any(
            gradient.layout != torch.strided or bool(gradient.any()) for gradient in gradients
        )

    def _after_gradient(self, parameter: torch.Tensor) -> None:
        self._has_gradients = True

    def _after_step(self, *arguments: Any) -> None:
        self._has_gradients, self.steps = False, self.steps + 1

    def _counted(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def take(*arguments: Any, **options: Any) -> Any:
            result = step(*arguments, **options)
            self._after_step()
            return result

        return take


def versions_of(parts: Mapping[str, Any]) -> list[Any]:
    """Return the versions of modules' parameters; then those of buffers, and which have gradients."""
    modules = [part for part in parts.values() if isinstance(part, torch.nn.Module)]
    trained = [value for part in modules for value in part.parameters()]
    buffers = [version(value) for part in modules for value in part.buffers()]
    return [[version(value) for value in trained], [buffers, [value.grad is None for value in trained]]]


def version(tensor: torch.Tensor) -> int:
    """Return how often a tensor was changed in place."""
    try:
        return int(tensor._version)
    except RuntimeError:  # made under inference_mode
        return 0
