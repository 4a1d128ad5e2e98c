"""The arrows between the rooms point one way: the table of docs/architecture.md against every import."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    *("gpu_spot", "infra", "lambdas", "policy", "pulumi_on_moto", "spot_training", "spot_work", "userdata"),
)

AWS_SDK = {"boto3", "botocore", "mypy_boto3"}
# Room → the modules it may import beside the standard library and itself. The longest matching room counts.
MAY_IMPORT: dict[str, set[str]] = {
    "infra": {
        "userdata",
        *(
            f"lambdas.core.{part}"
            for part in (
                *(
                    "group_config",
                    "health.settings",
                    "names",
                    "policies",
                    "rollout.release",
                    "rollout.settings",
                ),
                *("scaling.model", "scaling.settings", "warm_pool", "watched_queue"),
            )
        ),
        *("pulumi", "pulumi_aws", "pulumi_kubernetes", "pydantic"),
    },
    "infra.package": {
        *("infra.schema", "infra.scope", "infra.settings", "infra.stack"),
        *("pulumi", "pulumi_aws", "pydantic"),
    },
    # Pure: plain objects from the schema's models, and what the node agent would be told.
    "infra.kubernetes": {
        *("infra.accelerators", "infra.agent_config", "infra.instance_sizes", "infra.schema"),
        *("userdata.agent.config", "userdata.agent.work"),
    },
    "lambdas.core": set(),
    "lambdas.aws": {"lambdas.core", *AWS_SDK},
    "lambdas.handlers": {"lambdas.core", "lambdas.aws", "aws_lambda_powertools", *AWS_SDK},
    "lambdas": set(),
    "userdata": {
        *(f"lambdas.core.{part}" for part in ("names", "pulse", "registry_item", "rollout.release")),
        *AWS_SDK,
    },
    "pulumi_on_moto": {
        *("boto3", "botocore", "moto", "time_machine"),
        *("pulumi", "pulumi_aws", "google", "jmespath", "rich", "yaml", "flask", "flask_cors", "werkzeug"),
        *("kubernetes_validate", "xmltodict"),
    },
    # Each transport brings its own client library, imported where an address speaks it.
    "spot_work": set(),
    "spot_work.rabbitmq": {"spot_work", "pika"},
    "spot_work.sqs": {"spot_work", "boto3", "botocore"},
    # No framework in the core: it is imported where a script already has one, or none.
    "spot_training": set(),
    "spot_training.s3": {"spot_training", "boto3", "botocore"},
    "spot_training.keras": {"spot_training", "keras", "numpy"},
    "spot_training.torch": {"spot_training", "torch"},
    "spot_training.huggingface": {"spot_training", "transformers"},
    "spot_training.horovod": set(),
    # The rules are pure; what they ask of the world stands beside the pack.
    "policy.rules": {"lambdas.core.names"},
    "policy": {"policy.rules", "infra.on_demand_prices", "pulumi_policy", *AWS_SDK},
    "gpu_spot": {"pulumi_on_moto"},
    "gpu_spot.commands": {
        *(f"gpu_spot.{room}" for room in ("aws_check", "facts", "forecast", "jobs", "live", "market")),
        "gpu_spot.nodes.broker",
        *("gpu_spot.preflight", "gpu_spot.reference", "gpu_spot.report", "gpu_spot.review"),
        *("gpu_spot.status", "gpu_spot.drill"),
        *("lambdas.core.deadline.model", "pulumi_on_moto", "rich"),
        *("infra.accelerators", "infra.schema", "infra.settings", "boto3", "botocore", "yaml", "shtab"),
        *("lambdas.core.names", "userdata.tensorboard", "mypy_boto3"),
        *("infra.on_demand_prices", "policy.judge", "policy.rules.model"),
    },
    "gpu_spot.drill": {"gpu_spot.jobs", "gpu_spot.report.text", "gpu_spot.status", "lambdas.core"},
    "gpu_spot.facts": {"gpu_spot.jobs", "gpu_spot.market"},
    "gpu_spot.forecast": {
        *("gpu_spot.market", "gpu_spot.preflight.checks.money", "gpu_spot.preflight.prices"),
        *("gpu_spot.preflight.stack", "lambdas.core.model", "lambdas.core.policies", "pulumi_on_moto"),
        *("infra.accelerators", "infra.on_demand_prices", "infra.schema", "infra.settings"),
        *("infra.kubernetes.pods", "botocore", "mypy_boto3"),
    },
    "gpu_spot.jobs": {
        *("infra.on_demand_prices", "lambdas.core", "lambdas.aws"),
        *("userdata.agent.aws", "userdata.agent.config", "userdata.agent.work.record"),
    },
    "gpu_spot.live": {
        *("gpu_spot.drill", "gpu_spot.facts", "gpu_spot.jobs", "gpu_spot.market", "gpu_spot.nodes"),
        *("lambdas.core", "lambdas.aws", "userdata.agent.config", "pulumi_on_moto", "moto"),
        *("infra.on_demand_prices", "userdata.agent.tenants", "userdata.agent.work.queue"),
    },
    "gpu_spot.market": {"lambdas.core"},
    "gpu_spot.market.supply": {"gpu_spot.market.rules", "lambdas.core"},
    "gpu_spot.market.replay": {"gpu_spot.market.rules", "gpu_spot.market.supply", "lambdas.core"},
    "gpu_spot.market.comparison": {
        *(f"gpu_spot.market.{part}" for part in ("rules", "supply", "replay")),
        "lambdas.core",
    },
    "gpu_spot.market.load": {
        *(f"gpu_spot.market.{part}" for part in ("rules", "supply", "replay")),
        *("lambdas.core", "numpy"),
    },
    "gpu_spot.market.deadline": {
        *("gpu_spot.market.rules", "gpu_spot.market.supply", "lambdas.core.deadline", "numpy"),
    },
    "gpu_spot.nodes": {
        *("gpu_spot.facts", "userdata", "pulumi_on_moto", "spot_work"),
        *("moto", "botocore", "yaml", "cryptography"),
    },
    "gpu_spot.nodes.tenants": {
        *("gpu_spot.facts", "gpu_spot.nodes", "infra.host_shapes", "lambdas.core.names", "userdata"),
    },
    "gpu_spot.aws_check": {
        *("gpu_spot.preflight.account", "gpu_spot.preflight.prices"),
        *("pulumi_on_moto", "moto", "botocore"),
    },
    "gpu_spot.preflight": {
        *("infra.accelerators", "infra.schema", "infra.settings"),
        *("lambdas.core.model", "lambdas.core.names", "pulumi_on_moto", "boto3", "botocore"),
    },
    "gpu_spot.reference": {"infra.schema"},
    "gpu_spot.review": set(),
    "gpu_spot.status": {
        *("gpu_spot.facts.decisions", "gpu_spot.jobs", "gpu_spot.report", "lambdas.core", "lambdas.aws"),
        "rich",
    },
    "gpu_spot.report": {
        *("gpu_spot.facts", "gpu_spot.jobs", "gpu_spot.market", "lambdas.core"),
        *("plotly", "rich"),
    },
}


def within(module: str, package: str) -> bool:
    # mypy_boto3_ec2, mypy_boto3_sqs … are one distribution's stubs, a package for each service
    return module == package or module.startswith(
        (f"{package}.", "mypy_boto3_" if package == "mypy_boto3" else f"{package}.")
    )


def room_of(module: str) -> str:
    return max((room for room in MAY_IMPORT if within(module, room)), key=len)


def folder(package: str) -> Path:
    """A room that is a distribution of its own keeps its package below ``src``."""
    own = ROOT / package / "src" / package
    return own if own.is_dir() else ROOT / package


def module_name(path: Path) -> str:
    [home] = [folder(package).parent for package in PACKAGES if path.is_relative_to(folder(package))]
    parts = path.relative_to(home).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_module(name: str) -> bool:
    package, *rest = name.split(".")
    path = folder(package).joinpath(*rest)
    return path.is_dir() or path.with_suffix(".py").is_file()


def imports(source: str, module: str, *, is_package: bool = False) -> Iterator[tuple[int, str]]:
    """Yield line and absolute name of each import, also those inside functions and under TYPE_CHECKING."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".") if is_package else module.split(".")[:-1]
            base = package[: len(package) - (node.level - 1)] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            # `from lambdas.core import names` imports the module lambdas.core.names
            for alias in node.names:
                full = f"{origin}.{alias.name}"
                yield node.lineno, full if full.split(".")[0] in PACKAGES and is_module(full) else origin


def violations(source: str, module: str, *, is_package: bool = False) -> list[str]:
    room = room_of(module)
    allowed = {room, *MAY_IMPORT[room]}
    rule = f"{room} may import only the standard library, {', '.join(sorted(allowed))}"
    return [
        f"{module}:{line} imports {name}; {rule}"
        for line, name in imports(source, module, is_package=is_package)
        if name.split(".")[0] not in sys.stdlib_module_names and not any(within(name, one) for one in allowed)
    ]


SOURCES = sorted(path for package in PACKAGES for path in folder(package).rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_a_module_imports_only_what_its_room_may(path: Path) -> None:
    found = violations(path.read_text("utf-8"), module_name(path), is_package=path.name == "__init__.py")
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("lambdas.core.availability", "import boto3"),
        ("lambdas.core.availability", "from lambdas.aws import observe"),
        ("lambdas.core.policies.new", "def f():\n    import pydantic"),
        ("lambdas.core.policies.new", "from ...aws import observe"),
        ("lambdas.aws.act", "import lambdas.handlers"),
        ("lambdas.aws.act", "import userdata"),
        ("lambdas.handlers.controller", "from gpu_spot.market import replay"),
        ("userdata.agent", "from lambdas.core import memory"),
        ("userdata.agent", "import infra.settings"),
        ("infra.stack", "from lambdas.core.model import Group"),
        ("infra.stack", "from lambdas.core import model"),
        ("infra.stack", "import gpu_spot"),
        ("infra.kubernetes.jobs", "import pulumi"),
        ("infra.package.inputs", "from infra import workload"),
        ("gpu_spot.market.rules", "import gpu_spot.live"),
        ("gpu_spot.market.supply.trace", "from gpu_spot.market.replay import ledger"),
        ("gpu_spot.facts.run", "import gpu_spot.live"),
        ("gpu_spot.live.rehearsal", "from gpu_spot.report import summary"),
        ("gpu_spot.nodes.node", "import gpu_spot.live.cloud"),
        ("gpu_spot.review.comment", "import rich"),
        ("policy.rules.data", "import pulumi_policy"),
        ("gpu_spot.report.page", "import moto"),
        ("gpu_spot.commands.demo", "import infra"),
        ("pulumi_on_moto.sandbox", "import gpu_spot.live"),
        ("spot_work.worker", "import userdata.agent"),
        ("spot_training.checkpointer", "import numpy"),
        ("spot_training.checkpointer", "def f():\n    import boto3"),
        ("spot_training.keras", "import userdata"),
    ],
)
def test_an_arrow_that_points_the_wrong_way_is_found(module: str, source: str) -> None:
    assert len(violations(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "infra.stack",
            "from lambdas.core import names\nimport userdata.render\nfrom infra.components import network",
        ),
        ("lambdas.core.policies.new", "from ..model import Group\nimport json"),
        ("lambdas.aws.act", "from mypy_boto3_ec2 import EC2Client\nfrom lambdas.core.model import Group"),
        ("gpu_spot.live.cloud", "import moto, lambdas.aws.memory\nfrom gpu_spot.nodes import boot"),
        ("gpu_spot.cli", "import gpu_spot.commands.demo"),
    ],
)
def test_an_allowed_arrow_passes(module: str, source: str) -> None:
    assert violations(source, module) == []
