"""One vocabulary: the field's own words, and a name in capitals means one thing in all of the product."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_arrows import SOURCES, module_name

ROOT = Path(__file__).resolve().parents[1]
TEST_SOURCES = sorted(
    path for folder in (ROOT / "tests", *ROOT.glob("packages/*/tests")) for path in folder.rglob("*.py")
)

# The words of this file are retired in prose, too: `make lint` runs codespell with it.
RETIRED_IN_PROSE = ROOT / "docs" / "style" / "retired-words.txt"
RETIRED = {line.split("->")[0] for line in RETIRED_IN_PROSE.read_text("utf-8").splitlines()} | {
    "appetite",
    "aside",
    "asker",
    "audience",
    "beat",
    "beats",
    "begun",
    "bell",
    "beside",
    "bury",
    "buried",
    "chapter",
    "chapters",
    "changeover",
    "course",
    "courses",
    "doubts",
    "elsewhere",
    "glance",
    "hear",
    "heard",
    "hears",
    "heart",
    "hearts",
    "hostility",
    "keeper",
    "lab",
    "landlord",
    "mute",
    "neighbourhood",
    "onlooker",
    "outlook",
    "patience",
    "prudence",
    "pulse",
    "pulses",
    "reckoning",
    "remark",
    "remarks",
    "rhythm",
    "ring",
    "rings",
    "scene",
    "scenes",
    "seller",
    "sequel",
    "settler",
    "shelf",
    "sight",
    "sights",
    "spared",
    "standing",
    "stillness",
    "stirred",
    "storm",
    "story",
    "stories",
    "stray",
    "strays",
    "surroundings",
    "tales",
    "tell",
    "telling",
    "tells",
    "tenure",
    "toll",
    "travels",
    "trouble",
    "troubles",
    "turn",
    "unclear",
    "unfit",
    "unread",
    "unseen",
    "walls",
    "weather",
    "who",
    "whose",
    "witness",
    "witnesses",
}
"""No name holds one of these words."""
RETIRED_ALONE = {
    "answer",
    "answers",
    "asked",
    "due",
    "each",
    "found",
    "given",
    "going",
    "gone",
    "held",
    "here",
    "kept",
    "known",
    "lasting",
    "least",
    "left",
    "look",
    "looked",
    "looks",
    "made",
    "most",
    "one",
    "ones",
    "other",
    "others",
    "own",
    "place",
    "places",
    "said",
    "seen",
    "staying",
    "taken",
    "there",
    "until",
    "wanted",
    "what",
    "why",
}
"""No name of the product is one of these words alone: a value is called by its noun."""
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
    "Previews": {"infra.schema.operations", "infra.components.identity.previews"},
    "Python": {"infra.schema.jobs.training", "contracts.agent.config"},
    "QueueWatcher": {"infra.components.queues.watcher", "lambdas.aws.queues.watcher"},
    "Queue": {"infra.schema.services.queues.rabbitmq", "contracts.agent.config"},
    "Repository": {"infra.schema.operations", "infra.components.storage.repository"},
    "Scaler": {"infra.components.control.scaler", "lambdas.aws.scaler"},
    "Service": {"infra.schema.services.service", "infra.package.components", "contracts.agent.config"},
    "Storage": {"infra.schema.operations", "infra.components.storage.storage"},
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
        if path.is_relative_to(ROOT / "research") or path.is_relative_to(ROOT / "packages"):
            continue  # they have words of their own
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


def bound(source: str) -> Iterator[str]:
    """Yield every name that a module binds: classes, functions, parameters, fields, attributes, variables."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.arg(arg=name) | ast.alias(asname=str(name)):
                yield name
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case (
                ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
                | ast.ExceptHandler(name=str(name))
            ):
                yield name


def words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def retired(names: Iterator[str], alone: set[str]) -> set[str]:
    return {
        name for name in names if RETIRED.intersection(words(name)) or words(name) in [[w] for w in alone]
    }


def retired_in(path: Path, alone: set[str]) -> set[str]:
    return retired(iter((path.stem, *bound(path.read_text("utf-8")))), alone)


@pytest.mark.parametrize(
    ("sources", "alone"), [(SOURCES, RETIRED_ALONE), (TEST_SOURCES, set())], ids=["product", "tests"]
)
def test_no_name_holds_a_retired_word(sources: list[Path], alone: set[str]) -> None:
    names = {str(path.relative_to(ROOT)): sorted(retired_in(path, alone)) for path in sources}
    assert {path: held for path, held in names.items() if held} == {}


@pytest.mark.parametrize("name", ["told", "is_told", "TOLD_AT", "IllWorker", "one"])
def test_a_retired_word_is_noticed(name: str) -> None:
    assert retired(iter([name]), RETIRED_ALONE) == {name}


@pytest.mark.parametrize("name", ["install", "one_worker", "returns", "settled", "skill"])
def test_a_word_within_a_word_is_not(name: str) -> None:
    assert retired(iter([name]), RETIRED_ALONE) == set()
