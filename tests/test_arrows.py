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
    *("contracts", "gpu_spot", "infra", "lambdas", "market", "policy", "pulumi_declared", "pulumi_on_moto"),
    *("rehearsal", "spot_training", "spot_work", "userdata"),
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
    "infra": {
        *("contracts", "userdata"),
        *("pulumi", "pulumi_aws", "pulumi_kubernetes", "pydantic"),
    },
    "infra.catalogue": {"userdata.agent.tenants"},
    "infra.package": {
        *("infra.schema", "infra.scope", "infra.settings", "infra.program.stack"),
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
            *(f"infra.program.entries.{shared}" for shared in ("group", "http", "needs", "workload")),
        }
        for kind in ("cluster", "service", "shared_host", "training")
    },
    # Pure: plain objects from the schema's models, and what the node agent would be told.
    "infra.kubernetes": {
        *("infra.catalogue", "infra.schema", "contracts", "userdata.agent.work"),
    },
    "lambdas.core": {"contracts"},
    "lambdas.aws": {"contracts", "lambdas.core", *AWS_SDK},
    "lambdas.handlers": {
        *("contracts", "lambdas.core", "lambdas.aws", "aws_lambda_powertools"),
        *AWS_SDK,
    },
    "lambdas": set(),
    "userdata": {"contracts", *AWS_SDK},
    # The Pulumi SDK alone: what `pulumi_on_moto` and the operators' commands both need.
    "pulumi_declared": {"pulumi", "google", "yaml"},
    "pulumi_on_moto": {
        *("pulumi_declared", "boto3", "botocore", "moto", "time_machine"),
        *("pulumi", "pulumi_aws", "google", "jmespath", "rich", "yaml", "flask", "flask_cors", "werkzeug"),
        *("kubernetes_validate", "xmltodict"),
    },
    # Each transport brings its own client library, imported where an address speaks it.
    "spot_work": set(),
    "spot_work.rabbitmq": {"spot_work", "pika"},
    "spot_work.sqs": {"spot_work", "boto3", "botocore"},
    # No framework in the core: it is imported where a script already has one, or none.
    "spot_training": set(),
    "spot_training.storage.s3": {"spot_training", "boto3", "botocore"},
    "spot_training.storage.fsspec": {"spot_training", "fsspec"},
    "spot_training.keras": {"spot_training", "keras", "numpy"},
    "spot_training.torch": {"spot_training", "torch"},
    "spot_training.lightning": {"spot_training", "torch"},  # it names Lightning's packages only in a string
    "spot_training.torch.state": {"spot_training", "torch", "numpy"},  # arrays in a state, if NumPy is there
    "spot_training.huggingface": {"spot_training", "transformers"},
    "spot_training.horovod": set(),
    "spot_training.command.suggest": {"spot_training", "optuna"},
    # The rules are pure; what they ask of the world stands beside the pack.
    "policy.rules": {"contracts.names", "contracts.group"},
    "policy": {"policy.rules", "infra.catalogue.on_demand_prices", "pulumi_policy", *AWS_SDK},
    # The spot market as a library: no AWS, no moto.
    "market": {"contracts", "lambdas.core", "numpy"},
    "market.supply": {"contracts", "market.rules", "lambdas.core"},
    "market.replay": {"contracts", "market.rules", "market.supply", "lambdas.core"},
    "market.comparison": {
        *("contracts", "market.rules", "market.supply", "market.replay", "lambdas.core"),
    },
    "market.load": {
        *("contracts", "market.rules", "market.supply", "market.replay", "lambdas.core", "numpy"),
    },
    "market.deadline": {"market.rules", "market.supply", "lambdas.core.deadline", "numpy"},
    "market.nodes": {"contracts.group.warm_pool", "market.rules", "market.supply"},
    "market.plots": {"lambdas.core.capacity.policies"},
    # What runs for a real account: neither moto, nor what builds on it, nor what rehearses. See REHEARSES.
    "gpu_spot": {"pulumi_declared"},
    "gpu_spot.control": {"contracts", "lambdas.aws", "gpu_spot.text"},
    "gpu_spot.commands": {
        *("gpu_spot.aws_check", "gpu_spot.control", "gpu_spot.drill", "gpu_spot.jobs", "gpu_spot.preflight"),
        *("gpu_spot.reference", "gpu_spot.review", "gpu_spot.status", "gpu_spot.tenants", "contracts"),
        *("infra.catalogue", "infra.schema", "infra.settings", "userdata.tensorboard", "pulumi_declared"),
        *("boto3", "botocore", "mypy_boto3", "rich", "shtab", "yaml"),
    },
    "gpu_spot.commands.market": {
        *("gpu_spot.commands", "gpu_spot.forecast", "gpu_spot.preflight", "infra.catalogue"),
        *("infra.schema", "infra.settings", "market", "lambdas.core.deadline.model", "pulumi_declared"),
        *("boto3", "rich"),
    },
    "gpu_spot.commands.rehearsed": {"pulumi_declared"},
    "gpu_spot.drill": {
        *("contracts", "gpu_spot.jobs", "gpu_spot.text", "gpu_spot.status", "lambdas.core"),
        "userdata.agent.cost",
    },
    "gpu_spot.forecast": {
        "contracts",
        *("market", "gpu_spot.preflight", "lambdas.core.model", "lambdas.core.capacity.policies"),
        *("infra.catalogue", "infra.schema", "infra.settings", "infra.kubernetes.pods"),
        *("botocore", "mypy_boto3", "pulumi_declared"),
    },
    "gpu_spot.jobs": {
        *("contracts", "infra.catalogue", "lambdas.core", "lambdas.aws", "gpu_spot.text"),
        *("gpu_spot.control", "userdata.agent.aws", "userdata.agent.cost", "userdata.agent.study", "rich"),
        *("gpu_spot.preflight.unclaimed_volumes", "market.plots.svg", "botocore"),
    },
    # It tries what the program declares: its patterns, policies, names and tables.
    "gpu_spot.aws_check": {
        *("gpu_spot.preflight", "gpu_spot.forecast.price_list", "contracts", "infra.catalogue"),
        *("infra.components", "infra.iam", "userdata.agent.aws", "pulumi_declared", "botocore"),
    },
    "gpu_spot.preflight": {
        *("contracts", "infra.catalogue", "infra.schema", "infra.settings", "lambdas.core.model"),
        *("boto3", "botocore", "pulumi_declared"),
    },
    "gpu_spot.reference": {"infra.schema"},
    "gpu_spot.review": set(),
    "gpu_spot.status": {
        *("contracts", "gpu_spot.jobs", "gpu_spot.text", "lambdas.core", "lambdas.aws", "rich"),
        "userdata.agent.cost",
    },
    "gpu_spot.tenants": {"contracts"},
    "gpu_spot.text": set(),
    # What rehearses may import everything; nothing imports it but the commands that rehearse.
    "rehearsal": {
        *(
            "contracts",
            "gpu_spot",
            "infra",
            "lambdas",
            "market",
            "policy",
            "pulumi_declared",
            "pulumi_on_moto",
        ),
        *("spot_work", "userdata", "moto", "botocore", "yaml", "cryptography"),
    },
    "rehearsal.commands": {
        *("contracts", "gpu_spot", "infra", "market", "policy", "pulumi_declared", "pulumi_on_moto"),
        *("rehearsal", "rich"),
    },
    "rehearsal.machines": {
        *("rehearsal.results", "contracts", "infra.catalogue", "pulumi_on_moto", "spot_work", "userdata"),
        *("moto", "botocore", "yaml", "cryptography"),
    },
    "rehearsal.cloud": {"contracts", "lambdas", "pulumi_on_moto", "moto"},
    "rehearsal.results": {"gpu_spot.jobs", "gpu_spot.status.decisions", "market"},
    "rehearsal.report": {
        *("rehearsal.results", "gpu_spot.jobs", "gpu_spot.status.decisions", "gpu_spot.text", "market"),
        *("lambdas.core", "userdata.agent.cost", "plotly", "rich"),
    },
}

# Module or room → what else it may import inside functions: without it the rest of the command works.
IN_FUNCTIONS: dict[str, set[str]] = {
    "gpu_spot.commands.aws_check": {"rehearsal.aws_check"},
    "gpu_spot.commands.deployed.drill": {"rehearsal.commands.drill"},
    "gpu_spot.commands.rehearsed": {"rehearsal.commands"},
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
    """A room that is a distribution of its own keeps its package below ``src``, and may bring another."""
    if package == "pulumi_declared":
        return ROOT / "pulumi_on_moto" / "src" / package
    own = ROOT / package / "src" / package
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


def imports(source: str, module: str, *, is_package: bool = False) -> Iterator[tuple[int, str, bool]]:
    """Yield line and name of each import, also under TYPE_CHECKING, and whether it is in a function."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = {id(node) for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, id(node) in inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".") if is_package else module.split(".")[:-1]
            base = package[: len(package) - (node.level - 1)] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            # `from lambdas.core import names` imports the module contracts.names
            for alias in node.names:
                full = f"{origin}.{alias.name}"
                name = full if full.split(".")[0] in PACKAGES and is_module(full) else origin
                yield node.lineno, name, id(node) in inside


def violations(source: str, module: str, *, is_package: bool = False) -> list[str]:
    room = package_rule_of(module)
    allowed = {room, *MAY_IMPORT[room]}
    lazy = {one for place, more in IN_FUNCTIONS.items() if within(module, place) for one in more}
    rule = f"{room} may import only the standard library, {', '.join(sorted(allowed))}"
    return [
        f"{module}:{line} imports {name}; {rule}"
        for line, name, in_function in imports(source, module, is_package=is_package)
        if name.split(".")[0] not in sys.stdlib_module_names
        and not any(within(name, one) for one in (allowed | lazy if in_function else allowed))
    ]


SOURCES = sorted(path for package in PACKAGES for path in package_dir(package).rglob("*.py"))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_module_imports_only_what_its_room_may(package: str) -> None:
    found = [
        violation
        for path in sorted(package_dir(package).rglob("*.py"))
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
        ("gpu_spot.commands.rehearsed.demo", "import infra"),
        ("gpu_spot.commands.rehearsed.demo", "from rehearsal.commands import demo"),
        ("gpu_spot.commands.deployed.drill", "import rehearsal.commands.drill"),
        ("gpu_spot.commands.deployed.status", "def f():\n    import rehearsal.commands.drill"),
        ("gpu_spot.preflight.stack", "def f():\n    import pulumi_on_moto"),
        ("pulumi_declared.monitor", "import pulumi_on_moto"),
        ("pulumi_on_moto.sandbox", "import rehearsal"),
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
        ("gpu_spot.cli", "import gpu_spot.commands.rehearsed.demo"),
        ("gpu_spot.commands.deployed.drill", "def f():\n    from rehearsal.commands import drill"),
    ],
)
def test_an_allowed_arrow_passes(module: str, source: str) -> None:
    assert violations(source, module) == []
