"""The arrows between the rooms point one way: the table of docs/architecture.md against every import."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    *("contracts", "gpu_spot", "infra", "lambdas", "market", "policy", "pulumi_on_moto"),
    *("rehearsal", "research", "spot_training", "spot_work", "userdata"),
)

AWS_SDK = {"boto3", "botocore", "mypy_boto3"}
BELOW_THE_PROGRAM = {
    *("contracts", "infra.catalogue", "infra.components", "infra.iam", "infra.kubernetes", "infra.schema"),
    *("infra.scope", "userdata", "pulumi", "pulumi_aws"),
}
BELOW_THE_ENTRIES = {
    *BELOW_THE_PROGRAM,
    *(f"infra.program.{shared}" for shared in ("agent_config", "foundation", "group_config")),
}
# Room → the modules it may import beside the standard library and itself. The longest matching room counts.
MAY_IMPORT: dict[str, set[str]] = {
    # The ground floor: what one part writes and another reads.
    "contracts": set(),
    "infra": {*("contracts", "userdata"), *("pulumi", "pulumi_aws", "pulumi_kubernetes", "pydantic")},
    "infra.catalogue": {"contracts", "userdata.agent.tenants"},
    "infra.package": {
        *("contracts.agent.version", "infra.schema", "infra.scope", "infra.settings", "infra.program.stack"),
        *("pulumi", "pulumi_aws", "pydantic"),
    },
    "infra.schema": {
        *("contracts", "infra.catalogue", "userdata.agent.aws.permissions", "userdata.agent.machine"),
        *("userdata.agent.tenants", "pydantic"),
    },
    "infra.archives": {"contracts", "pulumi"},
    "infra.iam": {"contracts", "infra.schema", "infra.scope", "userdata.agent", "pulumi", "pulumi_aws"},
    "infra.components": {
        *("contracts", "infra.archives", "infra.catalogue", "infra.iam", "infra.kubernetes", "infra.schema"),
        *("infra.scope", "userdata", "pulumi", "pulumi_aws", "pulumi_kubernetes"),
    },
    # One stack: foundation, then entries, then what looks after them, then outputs.
    "infra.program": {"contracts", "infra", "userdata", "pulumi"},
    "infra.program.foundation": BELOW_THE_PROGRAM,
    "infra.program.agent_config": {"contracts", "infra.schema"},
    "infra.program.group_config": {"contracts", "infra.schema", "infra.program.agent_config"},
    "infra.program.entries": {*BELOW_THE_ENTRIES, "infra.program.entries"},
    # No kind of entry knows another.
    **{
        f"infra.program.entries.{kind}": {
            *BELOW_THE_ENTRIES,
            *(f"infra.program.entries.{shared}" for shared in ("checkpoints", "group", "needs", "workload")),
        }
        for kind in ("cluster", "service", "shared_host", "training")
    },
    # Pure: plain objects from the schema's models, and what the node agent would be told.
    "infra.kubernetes": {*("infra.catalogue", "infra.schema", "contracts", "userdata.agent.work")},
    "lambdas.core": {"contracts"},
    "lambdas.aws": {"contracts", "lambdas.core", *AWS_SDK},
    "lambdas.handlers": {*("contracts", "lambdas.core", "lambdas.aws", "aws_lambda_powertools"), *AWS_SDK},
    "lambdas": set(),
    "userdata": {"contracts", *AWS_SDK},
    "pulumi_on_moto": {
        *("boto3", "botocore", "moto", "time_machine"),
        *("pulumi", "pulumi_aws", "google", "jmespath", "rich", "yaml", "flask", "flask_cors", "werkzeug"),
        "kubernetes_validate",
    },
    # Each transport brings its own client library, imported where an address speaks it.
    "spot_work": set(),
    "spot_work.rabbitmq": {"spot_work", "pika"},
    "spot_work.sqs": {"spot_work", "boto3", "botocore"},
    # No framework in the core: it is imported where a script already has one, or none.
    "spot_training": set(),
    "spot_training.storage.s3": {"spot_training", "boto3", "botocore"},
    "spot_training.horovod": set(),
    "spot_training.keras": {"spot_training", "keras", "numpy"},
    "spot_training.torch": {"spot_training", "torch"},
    "spot_training.lightning": {"spot_training", "torch"},  # it names Lightning's packages only in a string
    "spot_training.torch.state": {"spot_training", "torch", "numpy"},  # arrays in a state, if NumPy is there
    "spot_training.huggingface": {"spot_training", "transformers"},
    # The rules are pure; what they ask of the world stands beside the pack.
    "policy.rules": {"contracts.names", "contracts.group", "contracts.sentences"},
    "policy": {
        *("contracts.sentences", "policy.rules", "infra.catalogue.on_demand_prices", "pulumi_policy"),
        *AWS_SDK,
    },
    # The spot market as a library: no AWS, no moto.
    "market": {"contracts", "lambdas.core", "numpy"},
    "market.supply": {"contracts", "market.rules", "lambdas.core"},
    "market.replay": {"contracts", "market.rules", "market.supply", "lambdas.core"},
    # What runs for a real account: neither moto, nor what builds on it, nor what rehearses.
    "gpu_spot": {"contracts.sentences", "gpu_spot.declared"},
    "gpu_spot.errors": set(),  # of every command
    "gpu_spot.progress": {"rich"},
    # The Pulumi SDK alone: stack files, and what a program declares.
    "gpu_spot.declared": {"pulumi", "google", "yaml"},
    "gpu_spot.commands": {
        *("gpu_spot.forecast", "gpu_spot.jobs", "gpu_spot.progress"),
        *("gpu_spot.preflight", "lambdas.core.model", "market.rules", "market.supply"),
        *("gpu_spot.reference", "gpu_spot.review", "gpu_spot.status", "contracts"),
        *("infra.catalogue", "infra.schema", "infra.settings", "userdata.tensorboard", "gpu_spot.declared"),
        *("boto3", "botocore", "mypy_boto3", "rich", "shtab", "yaml"),
    },
    "gpu_spot.forecast": {
        "contracts",
        *("market", "gpu_spot.preflight", "lambdas.core.model", "lambdas.core.capacity.policies"),
        *("infra.catalogue", "infra.schema", "infra.settings", "infra.kubernetes.pods"),
        *("botocore", "mypy_boto3", "gpu_spot.declared", "gpu_spot.markdown", "gpu_spot.text"),
    },
    "gpu_spot.jobs": {
        *(
            "contracts",
            "infra.catalogue",
            "infra.schema.access",
            "lambdas.core",
            "lambdas.aws",
            "gpu_spot.text",
        ),
        *("userdata.agent.aws", "rich", "gpu_spot.tables"),
        *("gpu_spot.preflight.unclaimed_volumes", "botocore"),
    },
    # What a command runs, apart from the declaration of its options.
    "gpu_spot.jobs.command": {
        *(
            "gpu_spot.jobs",
            "gpu_spot.commands",
            "gpu_spot.preflight",
            "infra.schema",
            "gpu_spot.declared",
            "botocore",
            "rich",
        )
    },
    "gpu_spot.status.command": {
        *(
            "gpu_spot.status",
            "gpu_spot.commands",
            "gpu_spot.preflight",
            "infra.schema",
            "gpu_spot.declared",
            "botocore",
            "rich",
        )
    },
    "gpu_spot.preflight.command": {*("gpu_spot.preflight", "gpu_spot.declared", "gpu_spot.progress", "rich")},
    # It tries what the program declares.
    "research.smoke": {
        *("contracts", "gpu_spot.declared", "gpu_spot.preflight", "infra.components", "lambdas.core"),
        *("botocore", "gpu_spot.tables"),
    },
    "gpu_spot.preflight": {
        *("contracts", "infra.catalogue", "infra.schema", "infra.settings", "lambdas.core.model"),
        *("boto3", "botocore", "gpu_spot.declared", "gpu_spot.tables"),
    },
    "gpu_spot.reference": {
        "contracts",
        "infra.catalogue",
        "infra.kubernetes",
        "infra.schema",
        "userdata.agent",
    },
    "gpu_spot.markdown": set(),
    "gpu_spot.review": {"gpu_spot.markdown", "gpu_spot.text"},
    "gpu_spot.status": {
        *("contracts", "gpu_spot.jobs", "gpu_spot.text", "lambdas.core", "lambdas.aws", "rich")
    },
    "gpu_spot.tables": set(),
    "gpu_spot.text": set(),
    # What rehearses may import everything; nothing imports it.
    "rehearsal": {
        *("contracts", "gpu_spot", "infra", "lambdas", "market", "policy", "pulumi_on_moto"),
        *("userdata", "moto", "botocore", "yaml"),
    },
    "rehearsal.commands": {
        *("contracts", "gpu_spot", "infra", "market", "policy", "pulumi_on_moto"),
        *("rehearsal", "rich"),
    },
    "rehearsal.machines": {
        *("rehearsal.results", "contracts", "infra.catalogue", "pulumi_on_moto", "userdata"),
        *("moto", "botocore", "yaml"),
    },
    "rehearsal.cloud": {"contracts", "lambdas", "pulumi_on_moto", "moto"},
    "rehearsal.results": {"gpu_spot.jobs", "gpu_spot.status.decisions", "market"},
    "rehearsal.report": {
        *("rehearsal.results", "gpu_spot.jobs", "gpu_spot.status.decisions", "gpu_spot.text", "market"),
        *("lambdas.core", "rich"),
    },
    # Studies of the product, for its maintainers: everything but the tests, and nothing imports it but they.
    "research": {
        *(package for package in PACKAGES if package != "research"),
        "packages",  # what plays the libraries: environments, brokers
        *("boto3", "botocore", "numpy", "pika", "rich", "yaml"),
    },
}


def within(module: str, package: str) -> bool:
    # mypy_boto3_ec2, mypy_boto3_sqs … are one distribution's stubs, a package for each service
    return module == package or module.startswith(
        (f"{package}.", "mypy_boto3_" if package == "mypy_boto3" else f"{package}.")
    )


def package_rule_of(module: str) -> str:
    return max((room for room in MAY_IMPORT if within(module, room)), key=len)


@cache
def package_dir(package: str) -> Path:
    """A room that is a distribution of its own keeps its package below ``src``."""
    own = ROOT / "packages" / package.replace("_", "-") / "src" / package
    return own if own.is_dir() else ROOT / package


@cache
def module_name(path: Path) -> str:
    [home] = [
        package_dir(package).parent for package in PACKAGES if path.is_relative_to(package_dir(package))
    ]
    parts = path.relative_to(home).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_module(name: str) -> bool:
    package, *rest = name.split(".")
    path = package_dir(package).joinpath(*rest)
    return path.is_dir() or path.with_suffix(".py").is_file()


def imports(source: str, module: str, *, is_package: bool = False) -> Iterator[tuple[int, str]]:
    """Yield line and name of each import, also under TYPE_CHECKING."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".") if is_package else module.split(".")[:-1]
            base = package[: len(package) - (node.level - 1)] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            # `from lambdas.core import names` imports the module contracts.names
            for alias in node.names:
                full = f"{origin}.{alias.name}"
                name = full if full.split(".")[0] in PACKAGES and is_module(full) else origin
                yield node.lineno, name


def violations(source: str, module: str, *, is_package: bool = False) -> list[str]:
    room = package_rule_of(module)
    allowed = {room, *MAY_IMPORT[room], *({"gpu_spot.errors"} if within(module, "gpu_spot") else ())}
    rule = f"{room} may import only the standard library, {', '.join(sorted(allowed))}"
    return [
        f"{module}:{line} imports {name}; {rule}"
        for line, name in imports(source, module, is_package=is_package)
        if name.split(".")[0] not in sys.stdlib_module_names and not any(within(name, one) for one in allowed)
    ]


SOURCES = sorted(path for package in PACKAGES for path in package_dir(package).rglob("*.py"))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_module_imports_only_what_its_room_may(package: str) -> None:
    sources = sorted(package_dir(package).rglob("*.py"))
    assert sources
    found = [
        violation
        for path in sources
        for violation in violations(
            path.read_text("utf-8"), module_name(path), is_package=path.name == "__init__.py"
        )
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("lambdas.core.capacity.availability", "import boto3"),
        ("lambdas.core.capacity.availability", "from lambdas.aws import observe"),
        ("lambdas.core.capacity.policies.new", "def f():\n    import pydantic"),
        ("lambdas.core.capacity.policies.new", "from ....aws import observe"),
        ("lambdas.aws.capacity.capacity_updater", "import lambdas.handlers"),
        ("lambdas.aws.capacity.capacity_updater", "import userdata"),
        ("lambdas.handlers.controller", "from market import replay"),
        ("userdata.agent", "from lambdas.core import memory"),
        ("userdata.agent", "import infra.settings"),
        ("infra.program.stack", "from lambdas.core.model import Group"),
        ("infra.program.stack", "from lambdas.core import model"),
        ("infra.schema.capacity", "from lambdas.core.capacity import policies"),
        ("contracts.codec", "import pydantic"),
        ("contracts.group.config", "from infra.schema import Capacity"),
        ("infra.program.stack", "import gpu_spot"),
        ("infra.kubernetes.jobs", "import pulumi"),
        ("infra.package.inputs", "from infra.program import operations"),
        ("infra.components.control.controller", "from infra.program import foundation"),
        ("infra.schema.settings", "import infra.components.network"),
        ("infra.program.foundation", "from infra.program.entries import kinds"),
        ("infra.program.entries.service.kind", "from infra.program.entries.training import kind"),
        ("market.rules", "import rehearsal"),
        ("market.supply.trace", "from market.replay import ledger"),
        ("rehearsal.results.run", "import rehearsal"),
        ("gpu_spot.status.reader", "from rehearsal.results import run"),
        ("rehearsal.machines.node", "import rehearsal.cloud.local_cloud"),
        ("gpu_spot.review.comment", "import rich"),
        ("policy.rules.data", "import pulumi_policy"),
        ("rehearsal.report.page", "import moto"),
        ("gpu_spot.commands.status", "def f():\n    import rehearsal.commands.demo"),
        ("gpu_spot.preflight.stack", "def f():\n    import pulumi_on_moto"),
        ("gpu_spot.declared.listing", "import pulumi_on_moto"),
        ("pulumi_on_moto.emulator", "import rehearsal"),
        ("research.replay", "from tests import soak"),
        ("market.replay.engine", "from research.simulation.comparison import runs"),
        ("gpu_spot.commands.forecast", "def f():\n    import research.prices"),
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
            "infra.program.stack",
            "from contracts import names\nimport userdata.render\nfrom infra.components import network",
        ),
        ("lambdas.core.capacity.policies.new", "from ..model import Group\nimport json"),
        (
            "lambdas.aws.capacity.capacity_updater",
            "from mypy_boto3_ec2 import EC2Client\nfrom lambdas.core.model import Group",
        ),
        (
            "rehearsal.cloud.local_cloud",
            "import moto, lambdas.aws.memory\nfrom rehearsal.cloud import holders",
        ),
    ],
)
def test_an_allowed_arrow_passes(module: str, source: str) -> None:
    assert violations(source, module) == []
