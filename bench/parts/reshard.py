"""State that n ranks saved and m restored: how many tensors differ, and how evenly the ranks write.

``python -m bench.parts.reshard`` prints it; processes of gloo on this machine, in PyTorch's environment.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, Final

from tests.real.environments import environment, play_module

KINDS: Final = ("fsdp", "hsdp", "tensor", "fsdp+tensor", "zero")
_SECONDS: Final = 1800.0


def reshard(
    kinds: Sequence[str] = KINDS,
    saved_by: Sequence[int] = (2, 4),
    restored_by: Sequence[int] = (1, 2, 4, 8),
    width: int = 16384,
) -> dict[str, Any]:
    """Return ``reshard_mismatches``, ``restores`` and, by division and ranks, each rank's ``bytes``.

    ``width``: of a layer; the state has about 380 bytes for each.
    """
    request = {"kinds": kinds, "saved_by": saved_by, "restored_by": restored_by, "width": width}
    with tempfile.TemporaryDirectory() as folder:
        arguments = ("shards_torch", folder, json.dumps(request))
        results = play_module(environment("torch"), *arguments, seconds=_SECONDS)
    restores = [texts for result in results.values() for texts in result["mismatches"].values()]
    cases = {case: result["bytes"] for case, result in results.items()}
    return {
        "reshard_mismatches": sum(map(len, restores)) + list(cases.values()).count([]),
        "restores": len(restores),
        "bytes": cases,
        "largest_share": {
            case: round(max(sizes) * len(sizes) / sum(sizes), 3) for case, sizes in cases.items() if sizes
        },
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(reshard(), indent=2) + "\n")
