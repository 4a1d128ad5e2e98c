"""Implementation of ``gpu-spot deploy --local``: deploy into an empty local cloud and check the policies."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from contracts.sentences import sentence
from gpu_spot.declared.stackfile import find_project, load
from gpu_spot.errors import ExitStatus
from gpu_spot.forecast import outline
from gpu_spot.preflight.stack import settings_of as settings_of_stack
from infra.catalogue import on_demand_prices
from infra.schema import Settings
from policy.evaluation import Violation, settings_of, violations
from policy.rules.model import ExternalFacts, Subject
from pulumi_on_moto import Deployment, sandbox, tree
from pulumi_on_moto.emulator import ACCOUNT
from rehearsal.commands.deployed import deployed


def run(args: argparse.Namespace) -> int:
    """Deploy, print resources, outputs and violations; return 1 for a mandatory violation.

    Raises ``LocalCloudError``.
    """
    console = Console()
    started = time.perf_counter()
    config = load(find_project(), args.stack)
    with sandbox(config.region) as clients:
        deployment = deployed(clients, config)
        violations_ = violated(deployment)
        is_violated = any(violation.level == "mandatory" for violation in violations_)
        code = ExitStatus.ALARM if is_violated else ExitStatus.DONE
        if args.json:
            sys.stdout.write(f"{as_json(deployment, violations_)}\n")
            return code
        if args.tree:
            console.print(tree(deployment))
        count = sum(not resource.is_component for resource in deployment.resources)
        console.print(
            f"{count} resources created in {time.perf_counter() - started:.1f} s; "
            "they exist until this command ends."
        )
    for violation in violations_:
        subject = violation.resource or "the stack"
        style = "bold red" if violation.level == "mandatory" else "yellow"
        console.print(
            f"[{style}]{violation.level}[/] {violation.rule}: {escape(sentence(subject, violation.message))}",
            soft_wrap=True,
        )
    _print_outline(console, settings_of_stack(config))
    return code


def _print_outline(console: Console, settings: Settings) -> None:
    """Print what the stack will do."""
    console.print("\n[bold]What will happen[/]")
    for row in outline.rows(settings):
        table = Table.grid(padding=(0, 2))
        for title, text in zip(outline.HEAD, row, strict=True):
            if text:
                table.add_row(title, escape(text))
        console.print(table, "")
    console.print(outline.total(settings), soft_wrap=True)


def as_json(deployment: Deployment, violations_: Sequence[Violation]) -> str:
    """Return a deployment and its policy violations as JSON text."""
    resources = [
        {"type": resource.type, "name": resource.name}
        for resource in deployment.resources
        if not resource.is_component
    ]
    document = {
        "stack": deployment.stack,
        "resources": resources,
        "outputs": dict(deployment.outputs),
        "violations": [
            {"rule": v.rule, "level": v.level, "resource": v.resource, "words": v.message}
            for v in violations_
        ],
    }
    return json.dumps(document, indent=2, default=str)


def violated(deployment: Deployment) -> Sequence[Violation]:
    """Return the violations of the policy pack in a deployment, with the stack's policy settings.

    The age of images is not checked: the local cloud makes them up.
    """
    subjects = [
        Subject(
            resource.type, resource.name, resource.urn, resource.inputs, resource.protect, deployment.region
        )
        for resource in deployment.resources
    ]
    facts = ExternalFacts(
        datetime.now(UTC), lambda _image, _region: None, on_demand_prices.price, lambda *_: ACCOUNT
    )
    return list(violations(subjects, settings_of(deployment.stack), facts))
