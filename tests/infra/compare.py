"""Differences between what all sample stacks declare at a commit and in this checkout.

    make declared ARGS=COMMIT
    make declared ARGS="COMMIT --ignore-texts"

Each stack's program runs under the SDK's mocks, with known and with unknown outputs. The order of
declarations and what follows from an archive's bytes (its hash) are not compared. Alarms are compared by
their names in CloudWatch.
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
TEXTS = ("alarmDescription", "description", "title", "label")
"""Inputs, and keys of a dashboard's body, that only people read; ``--ignore-texts`` leaves them out."""
REPLACED_BY_TEXT = ("aws:ec2/securityGroup:SecurityGroup", "aws:iam/policy:Policy")
"""A changed description replaces a resource of these types, so it is always compared."""
ALARM = "aws:cloudwatch/metricAlarm:MetricAlarm"
HASH = re.compile(r"agent [0-9a-f]{8}|\b[0-9a-f]{64}\b|\b[0-9a-f]{40}\b")
BASE64 = re.compile(r"[A-Za-z0-9+/=\n]{200,}")


def stack_file(root: Path, stack: str) -> Path:
    """Return the file of a stack in a checkout, which before 0.1.0 stood in the root."""
    folder = root / "stacks"
    return (folder if folder.is_dir() else root) / f"Pulumi.{stack}.yaml"


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


def dump(root: Path, stack: str, mode: str, *, ignore_texts: bool) -> None:
    """Print what a stack of the checkout at ``root`` declares; runs in a process of its own."""
    sys.path.insert(0, str(root))
    from tests.infra import program

    result = program.declared(mode, stack, stack_file(root, stack))
    for resource in result["declared"]:
        if resource["type"] == ALARM:
            resource["name"] = resource["inputs"].pop("name", resource["name"])
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
    parser.add_argument("--dump", nargs=3, metavar=("ROOT", "STACK", "MODE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.dump:
        root, stack, mode = options.dump
        dump(Path(root), stack, mode, ignore_texts=options.ignore_texts)
        return 0
    flags = ["--ignore-texts"] if options.ignore_texts else []
    differ = equal = 0
    with tempfile.TemporaryDirectory() as directory:
        before = Path(directory) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(before), options.commit], check=True)
        try:
            for path in sorted((ROOT / "stacks").glob("Pulumi.*.yaml")):
                stack = path.name.split(".")[1]
                if not stack_file(before, stack).exists():
                    continue
                for mode in MODES:
                    old = declared(before, stack, mode, *flags)
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
