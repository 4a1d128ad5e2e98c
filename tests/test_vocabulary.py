"""One vocabulary: a name in capitals means one thing in all of the product."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.test_arrows import SOURCES, module_name

ONE_THING_AND_ITS_SCHEMA = {
    "Bucket": {"infra.schema.operations", "infra.components.storage.bucket"},
    "CapacityGroup": {"infra.components.capacity.capacity_group", "infra.package.components"},
    "Controller": {"infra.components.control.controller", "lambdas.aws.capacity.controller"},
    "Dataset": {"infra.schema.work", "contracts.agent.config"},
    "Deploys": {"infra.schema.operations", "infra.components.identity.previews"},
    "FileSystem": {"infra.schema.operations", "infra.components.storage.file_system"},
    "HealthChecker": {"infra.components.control.health", "lambdas.aws.health.checker"},
    "Monitoring": {"infra.schema.operations", "infra.components.monitoring.monitoring"},
    "Network": {"infra.schema.network", "infra.components.network.network"},
    "Notice": {"userdata.agent.work.notice", "spot_training.notice"},
    "Previews": {"infra.schema.operations", "infra.components.identity.previews"},
    "Python": {"infra.schema.jobs.training", "contracts.agent.config"},
    "QueueWatcher": {"infra.components.queues.watcher", "lambdas.aws.queues.watcher"},
    "Queue": {"infra.schema.services.queues.rabbitmq", "contracts.agent.config", "spot_work.queues"},
    "Repository": {"infra.schema.operations", "infra.components.storage.repository"},
    "Scaler": {"infra.components.control.scaler", "lambdas.aws.scaler"},
    "Service": {"infra.schema.services.service", "infra.package.components", "contracts.agent.config"},
    "Storage": {"infra.schema.operations", "infra.components.storage.storage"},
    "Progress": {"contracts.registry.item", "spot_training.progress"},
    "Worker": {"contracts.registry.item", "spot_work.worker"},
    "TensorBoard": {"infra.schema.tensorboard", "infra.components.monitoring.tensorboard"},
    "SharedHost": {"infra.schema.shared_host", "contracts.agent.config"},
    "Tenant": {"infra.schema.shared_host", "userdata.agent.tenants.model"},
    "Training": {"infra.schema.jobs.training", "contracts.agent.config"},
}
"""What the stack file says of a thing, what the program or a component declares of it, what is known of it,
what it is at work; what the agent writes and a script hears."""


def names(source: str) -> Iterator[str]:
    """Yield the classes of a module, and its aliases of types: ``Name = …`` in capitals, but no constants."""
    for node in ast.parse(source).body:
        match node:
            case ast.ClassDef(name=name):
                yield name
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ) if name[:1].isupper() and not name.isupper():
                # `Run = module.Run` is the same thing by the same name.
                if not (isinstance(value, ast.Attribute) and value.attr == name):
                    yield name


@pytest.fixture(scope="module")
def doubled() -> dict[str, set[str]]:
    """The modules of each name that several define."""
    meant: dict[str, set[str]] = defaultdict(set)
    for path in SOURCES:
        for found in names(path.read_text("utf-8")):
            meant[found].add(module_name(path))
    return {name: modules for name, modules in meant.items() if len(modules) > 1}


def test_a_name_means_one_thing(doubled: dict[str, set[str]]) -> None:
    assert {
        name: sorted(modules)
        for name, modules in doubled.items()
        if modules != ONE_THING_AND_ITS_SCHEMA.get(name)
    } == {}, "these mean several things"


@pytest.mark.parametrize("name", sorted(ONE_THING_AND_ITS_SCHEMA))
def test_an_exception_is_needed(name: str, doubled: dict[str, set[str]]) -> None:
    assert name in doubled, f"{name} stands in one module: take it out of the list"


def test_an_alias_in_capitals_counts_and_a_constant_does_not() -> None:
    source = 'Side = Literal["a"]\nSIDES = (1,)\nT: TypeAlias = int\nclass Held: ...\nnobody = 1'
    assert list(names(source)) == ["Side", "Held"]
