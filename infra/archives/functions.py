"""The archive that all helper functions run from: ``lambdas/`` and, as the lock pins it, Powertools.

AWS offers Powertools as a layer, too, but its ARN differs by partition and region, and not every one has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pulumi

from infra.archives import pins
from lambdas.core import names

PACKAGES: Final[Mapping[str, str]] = {
    "aws-lambda-powertools": "aws_lambda_powertools",
    "jmespath": "jmespath",
    "typing-extensions": "typing_extensions.py",
}
"""What the functions import beside Lambda's own boto3, and what that imports: distribution → its package or
module. All are pure Python, so that the archive runs on any architecture."""

_SHIPPED: Final = (".json", ".py")


def sources(package: Path | None = None) -> dict[str, Path]:
    """Return path in the archive → file, sorted; ``package`` is the folder of ``lambdas``.

    Raises ``pulumi.RunError`` for a dependency that is missing, or another than the lock pins.
    """
    found = {**dict(_ours(package or Path(names.__file__).parents[1])), **dict(_packages())}
    return dict(sorted(found.items()))


def build(package: Path | None = None) -> pulumi.AssetArchive:
    """Return the archive. Listing its keys keeps out ``__pycache__``, which would change its hash."""
    return pulumi.AssetArchive({key: pulumi.FileAsset(str(file)) for key, file in sources(package).items()})


def _ours(root: Path) -> Iterator[tuple[str, Path]]:
    for file in root.rglob("*"):
        if file.suffix in _SHIPPED and "__pycache__" not in file.parts:
            yield file.relative_to(root.parent).as_posix(), file


def _packages() -> Iterator[tuple[str, Path]]:
    for name, package in PACKAGES.items():
        found = pins.installed(name)
        for file in found.files or ():
            if file.parts[0] == package and file.suffix == ".py":
                yield file.as_posix(), Path(str(found.locate_file(file)))
