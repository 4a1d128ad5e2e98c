"""The archive of ``lambdas/`` that all helper functions run from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pulumi

from lambdas.core import names

_SHIPPED: Final = ("*.py", "*.json")


def sources(package: Path | None = None) -> Iterator[tuple[str, Path]]:
    """Yield (path in the archive, file), sorted, for each module and table of ``package`` (``lambdas``)."""
    root = package or Path(names.__file__).parents[1]
    for file in sorted(file for kind in _SHIPPED for file in root.rglob(kind)):
        if "__pycache__" in file.parts:
            continue
        yield file.relative_to(root.parent).as_posix(), file


def build(package: Path | None = None) -> pulumi.AssetArchive:
    """Return the archive. Listing its keys keeps out ``__pycache__``, which would change its hash."""
    return pulumi.AssetArchive({key: pulumi.FileAsset(str(file)) for key, file in sources(package)})
