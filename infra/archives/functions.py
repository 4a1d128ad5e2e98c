"""The archive of all Lambda functions: ``lambdas/``, ``contracts/`` and Powertools, as the lock pins it.

boto3 is in a layer of the stack (``sdk.py``). Powertools' own layer is not used: its ARN differs by partition
and Region, and some have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from infra.archives import pins, zip_file

PACKAGES: Final[Mapping[str, str]] = {
    "aws-lambda-powertools": "aws_lambda_powertools",
    "jmespath": "jmespath",
    "typing-extensions": "typing_extensions.py",
}
"""Direct and transitive dependencies of the functions, without boto3: distribution to package or module. They
are pure Python, so the archive runs on any CPU architecture."""

_LOCAL: Final = zip_file.OUT / "functions"
_OURS: Final = ("contracts", "lambdas")
_SHIPPED: Final = (".json", ".py")


def sources(root: Path = zip_file.ROOT) -> dict[str, Path]:
    """Return the files by their path in the archive, sorted; ``root`` is the directory of our packages.

    Raises:
        pulumi.RunError: a dependency is not installed in the version of the lock.
    """
    files = {**dict(zip_file.files(root, _OURS, _SHIPPED)), **dict(_packages())}
    return dict(sorted(files.items()))


def build(directory: Path = _LOCAL) -> zip_file.ZipFile:
    """Write the archive to ``directory``, unless it exists, and return it.

    A file: of an archive of assets each function's state has every file, half a megabyte.
    """
    return zip_file.write(_packed(), directory)


@cache
def _packed() -> bytes:
    return zip_file.packed("functions", sources)


@cache
def _packages() -> tuple[tuple[str, Path], ...]:
    distributions = {package: pins.installed(name) for name, package in PACKAGES.items()}
    return tuple(
        (file.as_posix(), Path(str(distribution.locate_file(file))))
        for package, distribution in distributions.items()
        for file in distribution.files or ()
        if file.parts[0] == package and file.suffix == ".py"
    )
