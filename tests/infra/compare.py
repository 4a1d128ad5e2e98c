"""What a change declares otherwise: all sample stacks at a commit and as they stand here.

    make declared ARGS=COMMIT

Each stack's program runs under the SDK's mocks, with known and with unknown outputs. What follows from the
bytes of an archive (its hash) counts as equal, and the order of declarations does not count.
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
HASH = re.compile(r"agent [0-9a-f]{8}|[0-9a-f]{64}")
BASE64 = re.compile(r"[A-Za-z0-9+/=\n]{200,}")


def normal(value: Any, root: Path) -> Any:
    """Leave out what every change of a source changes: hashes, an archive's files, where it lies."""
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


def dump(root: Path, stack: str, mode: str) -> None:
    """Print what a stack of the checkout at ``root`` declares; for a process of its own."""
    sys.path.insert(0, str(root))
    from tests.infra import program

    told = program.declared(mode, stack, root / f"Pulumi.{stack}.yaml")
    for part in ("declared", "lookups"):
        told[part].sort(key=lambda one: json.dumps(one, sort_keys=True))
    sys.stdout.write(json.dumps(normal(told, root), indent=1, sort_keys=True))


def declared(root: Path, stack: str, mode: str) -> list[str]:
    """Return the lines of what a stack of a checkout declares."""
    command = [sys.executable, __file__, "--dump", str(root), stack, mode]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{stack} ({mode}) at {root}: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout.splitlines(keepends=True)


def main() -> int:
    """Print the difference of all stacks that both have; the exit code is 1 where there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", default="HEAD", help="compared with (default: %(default)s)")
    parser.add_argument("--dump", nargs=3, metavar=("ROOT", "STACK", "MODE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.dump:
        dump(Path(options.dump[0]), *options.dump[1:])
        return 0
    differ = equal = 0
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(before), options.commit], check=True)
        try:
            for path in sorted(ROOT.glob("Pulumi.*.yaml")):
                if not (before / path.name).exists():
                    continue
                stack = path.name.split(".")[1]
                for mode in MODES:
                    old, new = declared(before, stack, mode), declared(ROOT, stack, mode)
                    lines = list(difflib.unified_diff(old, new, f"{stack} ({mode})", "here", n=2))
                    sys.stdout.writelines(lines)
                    differ, equal = differ + bool(lines), equal + (not lines)
        finally:
            subprocess.run([*git, "remove", "--force", str(before)], check=True)
    sys.stdout.write(f"{equal} equal, {differ} different (each stack with known and with unknown outputs)\n")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
