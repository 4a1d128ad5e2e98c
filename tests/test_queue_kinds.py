"""Only the listed modules name, check or import a kind of queue."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from typing import TypeGuard

import pytest

from tests.test_arrows import ROOT, SOURCES, imports, module_name

ALLOWED_PATHS = (
    "gpu_spot/preflight/checks/secrets.py",
    "infra/components/queues/",
    "infra/iam/rabbitmq_statements.py",
    "infra/iam/sqs_statements.py",
    "infra/schema/services/queues/",
    "lambdas/aws/queues/",
    "packages/spot-work/src/spot_work/rabbitmq/",
    "packages/spot-work/src/spot_work/sqs/",
    "packages/spot-work/src/spot_work/transports.py",
)
"""Modules of the kinds and the lists of them; CONTRIBUTING.md, "Adding a queue kind"."""
KINDS = {"rabbitmq", "sqs"}
KIND_MODULES = (
    *(f"infra.components.queues.{kind}" for kind in sorted(KINDS)),
    *(f"infra.iam.{kind}_statements" for kind in sorted(KINDS)),
    *(f"infra.schema.services.queues.{kind}" for kind in sorted(KINDS)),
    *(f"lambdas.aws.queues.{kind}" for kind in sorted(KINDS)),
    *(f"spot_work.{kind}" for kind in sorted(KINDS)),
)
WORDS = re.compile("queue|rabbitmq|sqs", re.IGNORECASE)
BUILT_IN = {name for name, value in vars(builtins).items() if isinstance(value, type)}


def lines_that_check_kind(source: str, module: str, *, is_package: bool = False) -> Iterator[int]:
    """Yield the lines that check a queue's kind.

    ``sqs`` is also the name of a client: it counts only in comparisons.
    """
    for line, name in imports(source, module, is_package=is_package):
        if any(name == one or name.startswith(f"{one}.") for one in KIND_MODULES):
            yield line
    for node in ast.walk(ast.parse(source)):
        if _checks_kind(node):
            yield node.lineno


def _checks_kind(node: ast.AST) -> TypeGuard[ast.expr | ast.pattern]:
    if isinstance(node, ast.Constant):
        return node.value == "rabbitmq"
    if isinstance(node, ast.MatchValue):
        return bool(KINDS & _texts(node))
    if isinstance(node, ast.Compare):
        asked = ast.unparse(node).lower()
        return bool(KINDS & _texts(node)) and ("kind" in asked or "queue" in asked)
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
        given, classes = map(ast.unparse, node.args)
        return "queue" in given.lower() and classes not in BUILT_IN
    return False


def _texts(node: ast.AST) -> set[str]:
    return {
        one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)
    }


def test_only_allowed_modules_check_a_queues_kind() -> None:
    found = []
    for path in SOURCES:
        place, source = path.relative_to(ROOT).as_posix(), path.read_text("utf-8")
        if not place.startswith(ALLOWED_PATHS) and WORDS.search(source):
            lines = lines_that_check_kind(source, module_name(path), is_package=path.name == "__init__.py")
            found += [f"{place}:{line}" for line in lines]
    assert not found


@pytest.mark.parametrize("place", ALLOWED_PATHS)
def test_each_allowed_path_exists(place: str) -> None:
    assert (ROOT / place).exists()


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("place", [place for place in ALLOWED_PATHS if place.endswith("/queues/")])
def test_each_package_has_a_module_or_a_package_for_each_kind(place: str, kind: str) -> None:
    assert (ROOT / place / kind).is_dir() or (ROOT / place / f"{kind}.py").is_file()


@pytest.mark.parametrize(
    "source",
    [
        "if service.queue.kind == 'sqs': ...",
        "found = 'x' if queue.kind in ('sqs',) else 'y'",
        "match queue.kind:\n    case 'sqs': ...",
        "isinstance(service.queue, Model)",
        "{'rabbitmq': 1}",
        "def f():\n    from infra.schema.services.queues import sqs",
        "from infra.components.queues.rabbitmq.broker import Broker",
    ],
)
def test_a_check_of_the_kind_is_found(source: str) -> None:
    assert [*lines_that_check_kind(source, "infra.program.stack")]


@pytest.mark.parametrize(
    "source",
    [
        "client('sqs')",
        "wait = LONG if service == 'sqs' else SHORT",
        "from infra.components.queues import kinds",
        "isinstance(entry, Service)",
    ],
)
def test_other_code_is_not_reported(source: str) -> None:
    assert not [*lines_that_check_kind(source, "infra.program.stack")]
