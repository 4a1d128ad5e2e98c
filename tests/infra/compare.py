"""Differences between what all sample stacks declare at a commit and in this checkout.

    make declared ARGS=COMMIT
    make declared ARGS="COMMIT --ignore-texts"

Each stack's program runs under the SDK's mocks, with known and with unknown outputs. The order of
declarations and what follows from an archive's bytes (its hash) are not compared. The names in ``RENAMED_…``
are applied to the older side.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import contextlib
import difflib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MODES = ("known", "unknown")
RENAMED_ALARMS = {
    "silent": "not-running",
    "unkept": "controller-errors",
    "half-seen": "incomplete-observation",
    "refused": "controller-alarm",
    "unwell": "unhealthy",
    "unchecked": "health-check-errors",
    "pace-unknown": "throughput-unknown",
    "unscaled": "scaler-errors",
    "queue-unseen": "queue-unreachable",
    "queue-unread": "queue-no-consumers",
    "queue-old": "queue-message-age",
    "queue-deep": "queue-length",
    "queue-dead": "queue-dead-letters",
}
"""The end of an alarm's name, old to new. Its logical name stays; the new name is the input ``name``."""
RENAMED_METRICS = {
    "Doomed": "InterruptedInstances",
    "Troubles": "ReadErrors",
    "QueueTaken": "QueueInFlight",
    "QueueReaders": "QueueConsumers",
    "QueueOldest": "QueueOldestMessageAge",
    "QueueArriving": "QueuePublishRate",
    "QueueLeaving": "QueueAckRate",
    "QueueUnseen": "QueueUnreachable",
    "WorkersSilent": "WorkersNotReporting",
    "ScalingWanted": "ScalingDesired",
    "ScalingBlind": "ScalingLoadUnknown",
    "ScalingStale": "ScalingThroughputUnknown",
    "ScalingCeiling": "ScalingAtMaximum",
    "DeadlineTroubles": "DeadlineAtRisk",
    "BudgetTroubles": "BudgetAtRisk",
}
TEXTS = ("alarmDescription", "description", "title", "label")
"""Inputs, and keys of a dashboard's body, that only people read; ``--ignore-texts`` leaves them out."""
REPLACED_BY_TEXT = ("aws:ec2/securityGroup:SecurityGroup", "aws:iam/policy:Policy")
"""A changed description replaces a resource of these types, so it is always compared."""
ALARM = "aws:cloudwatch/metricAlarm:MetricAlarm"
HASH = re.compile(r"agent [0-9a-f]{8}|\b[0-9a-f]{64}\b|\b[0-9a-f]{40}\b")
BASE64 = re.compile(r"[A-Za-z0-9+/=\n]{200,}")
METRIC = re.compile(rf"\b({'|'.join(RENAMED_METRICS)})\b")


def normal(value: Any, root: Path) -> Any:
    """Return ``value`` without what every change of a source changes: hashes, archive contents, paths."""
    if isinstance(value, dict):
        return {key: normal(item, root) for key, item in value.items()}
    if isinstance(value, list):
        if any(isinstance(item, str) and item.startswith("lambdas/") for item in value):
            return "<archive>"
        return [normal(item, root) for item in value]
    if not isinstance(value, str):
        return value
    if BASE64.fullmatch(value):
        with contextlib.suppress(binascii.Error, UnicodeDecodeError):
            value = base64.b64decode(value, validate=True).decode()
    return HASH.sub("<hash>", value.replace(str(root), "<root>"))


def renamed(resource: dict[str, Any]) -> dict[str, Any]:
    """Return a resource of the older side with the new names of alarms and metrics."""
    if resource["type"] == ALARM:
        return resource | {"inputs": _renamed_alarm(resource["name"], resource["inputs"])}
    if "dashboardBody" in resource["inputs"]:
        inputs: dict[str, Any] = json.loads(
            METRIC.sub(lambda match: RENAMED_METRICS[match[0]], json.dumps(resource["inputs"]))
        )
        return resource | {"inputs": inputs}
    return resource


def _renamed_alarm(logical_name: str, inputs: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(
        METRIC.sub(lambda match: RENAMED_METRICS[match[0]], json.dumps(inputs))
    )
    end = next((end for end in RENAMED_ALARMS if logical_name.endswith(f"-{end}")), None)
    if end is None or "name" in inputs:
        return result
    name = logical_name.removesuffix(end) + RENAMED_ALARMS[end]
    return result | {"name": name, "tags": result["tags"] | {"Name": name}}


def without_texts(value: Any) -> Any:
    """Return ``value`` without the texts that only people read, also of a dashboard's body."""
    if isinstance(value, list):
        return [without_texts(item) for item in value]
    if not isinstance(value, dict):
        return value
    result = {key: without_texts(item) for key, item in value.items() if key not in TEXTS}
    with contextlib.suppress(KeyError, ValueError):
        result["dashboardBody"] = without_texts(json.loads(result["dashboardBody"]))
    return result


def dump(root: Path, stack: str, mode: str, *, rename: bool, ignore_texts: bool) -> None:
    """Print what a stack of the checkout at ``root`` declares; runs in a process of its own."""
    sys.path.insert(0, str(root))
    from tests.infra import program

    result = program.declared(mode, stack, root / f"Pulumi.{stack}.yaml")
    if rename:
        result["declared"] = [renamed(resource) for resource in result["declared"]]
    if ignore_texts:
        result["declared"] = [
            resource if resource["type"] in REPLACED_BY_TEXT else without_texts(resource)
            for resource in result["declared"]
        ]
    result["declared"].sort(key=lambda resource: (resource["type"], resource["name"]))
    result["lookups"].sort()
    sys.stdout.write(json.dumps(normal(result, root), indent=1, sort_keys=True))


def declared(root: Path, stack: str, mode: str, *options: str) -> list[str]:
    """Return the lines of what a stack of a checkout declares."""
    command = [sys.executable, __file__, *options, "--dump", str(root), stack, mode]
    process = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if process.returncode:
        sys.exit(f"{stack} ({mode}) at {root}: {process.stderr.strip().splitlines()[-1]}")
    return process.stdout.splitlines(keepends=True)


def main() -> int:
    """Print the differences of all stacks that both checkouts have; return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", default="HEAD", help="older side (default: %(default)s)")
    parser.add_argument("--ignore-texts", action="store_true", help=f"leave out {', '.join(TEXTS)}")
    parser.add_argument("--rename", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--dump", nargs=3, metavar=("ROOT", "STACK", "MODE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.dump:
        root, stack, mode = options.dump
        dump(Path(root), stack, mode, rename=options.rename, ignore_texts=options.ignore_texts)
        return 0
    flags = ["--ignore-texts"] if options.ignore_texts else []
    differ = equal = 0
    with tempfile.TemporaryDirectory() as directory:
        before = Path(directory) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(before), options.commit], check=True)
        try:
            for path in sorted(ROOT.glob("Pulumi.*.yaml")):
                if not (before / path.name).exists():
                    continue
                stack = path.name.split(".")[1]
                for mode in MODES:
                    old = declared(before, stack, mode, "--rename", *flags)
                    new = declared(ROOT, stack, mode, *flags)
                    lines = list(difflib.unified_diff(old, new, f"{stack} ({mode})", "here", n=2))
                    sys.stdout.writelines(lines)
                    differ, equal = differ + bool(lines), equal + (not lines)
        finally:
            subprocess.run([*git, "remove", "--force", str(before)], check=True)
    sys.stdout.write(f"{equal} equal, {differ} different (each stack with known and with unknown outputs)\n")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
