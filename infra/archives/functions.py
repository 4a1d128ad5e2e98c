"""The archive of all helper functions: ``lambdas/``, ``contracts/`` and, as the lock pins it, Powertools.

AWS offers Powertools as a layer, too, but its ARN differs by partition and region, and not every one has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pulumi

from infra.archives import pins
from infra.archives import sources as ours

PACKAGES: Final[Mapping[str, str]] = {
    "aws-lambda-powertools": "aws_lambda_powertools",
    "jmespath": "jmespath",
    "typing-extensions": "typing_extensions.py",
}
"""What the functions import beside Lambda's own boto3, and what that imports: distribution → its package or
module. All are pure Python, so that the archive runs on any architecture."""

_OURS: Final = ("contracts", "lambdas")
_SHIPPED: Final = (".json", ".py")


def sources(root: Path = ours.ROOT) -> dict[str, Path]:
    """Return path in the archive → file, sorted; ``root`` is the folder in which our packages lie.

    Raises ``pulumi.RunError`` for a dependency that is missing, or another than the lock pins.
    """
    found = {**dict(ours.files(root, _OURS, _SHIPPED)), **dict(_packages())}
    return dict(sorted(found.items()))


def build(root: Path = ours.ROOT) -> pulumi.AssetArchive:
    """Return the archive. Listing its keys keeps out ``__pycache__``, which would change its hash."""
    return pulumi.AssetArchive({key: pulumi.FileAsset(str(file)) for key, file in sources(root).items()})


def _packages() -> Iterator[tuple[str, Path]]:
    for name, package in PACKAGES.items():
        found = pins.installed(name)
        for file in found.files or ():
            if file.parts[0] == package and file.suffix == ".py":
                yield file.as_posix(), Path(str(found.locate_file(file)))
