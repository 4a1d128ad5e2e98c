"""boto3 as the lock pins it, with the models of the services in use: for the functions and the node agent.

botocore has models of 400 more services, which take 25 MB.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from infra.archives import zip_file
from infra.archives.pins import installed

PACKAGES: Final[Mapping[str, str]] = {
    "boto3": "boto3",
    "botocore": "botocore",
    "jmespath": "jmespath",
    "python-dateutil": "dateutil",
    "s3transfer": "s3transfer",
    "six": "six.py",
    "urllib3": "urllib3",
}
"""boto3 and its dependencies: distribution to package or module. They are pure Python, so the archives run on
any CPU architecture."""

FUNCTION_SERVICES: Final = (
    *("autoscaling", "cloudwatch", "dynamodb", "ec2", "secretsmanager", "sns", "sqs", "ssm"),
)
"""AWS services of the functions."""

_LOCAL: Final = zip_file.OUT / "sdk"
_LAYER_PREFIX: Final = "python"
"""Directory of Python packages in a layer. Source: Lambda guide, "Working with layers for Python"."""
_PACKAGE_FILES: Final = (".py", ".pem")
_MODELS: Final = ("service-2", "endpoint-rule-set-1", "paginators-1")


def files(packages: Mapping[str, str], services: Collection[str]) -> Iterator[tuple[str, Path]]:
    """Yield the path in an archive and the file of ``packages``; botocore's models only of ``services``.

    Raises:
        pulumi.RunError: a package is not installed in the version of the lock.
    """
    for name, package in packages.items():
        distribution = installed(name)
        package_files = [file for file in distribution.files or () if file.parts[0] == package]
        models = {file.parts[2:4] for file in package_files if _is_model(file.parts, services)}
        newest = {service: max(v for s, v in models if s == service) for service, _ in models}
        for file in package_files:
            parts = file.parts
            if "data" not in parts[:2]:
                is_included = file.suffix in _PACKAGE_FILES
            elif package == "botocore" and len(parts) == 3:  # endpoints, partitions, retries
                is_included = file.suffix == ".json"
            else:
                is_included = (
                    _is_model(parts, services)
                    and newest[parts[2]] == parts[3]
                    and parts[4].partition(".")[0] in _MODELS
                )
            if is_included:
                yield file.as_posix(), Path(str(distribution.locate_file(file)))


def layer_sources() -> dict[str, Path]:
    """Return the files of the functions' layer by their path in it, sorted."""
    return {f"{_LAYER_PREFIX}/{name}": path for name, path in sorted(files(PACKAGES, FUNCTION_SERVICES))}


def build_layer(directory: Path = _LOCAL) -> zip_file.ZipFile:
    """Write the functions' layer to ``directory``, unless it exists, and return it."""
    return zip_file.write(_layer(), directory)


@cache
def _layer() -> bytes:
    return zip_file.packed("sdk", layer_sources)


def _is_model(parts: tuple[str, ...], services: Collection[str]) -> bool:
    """Return whether a file belongs to the model of a service: botocore/data/<service>/<version>/<file>."""
    return parts[:2] == ("botocore", "data") and len(parts) == 5 and parts[2] in services
