"""Common parts of benchmarks: options, result file, violations."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

MACHINE: Final = {"cpus": os.cpu_count(), "python": platform.python_version()}


def parser_of(doc: str | None, name: str, *, docs: bool = False) -> argparse.ArgumentParser:
    """Return the parser of a benchmark: ``--out``, and ``--docs`` for one that writes a page."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(f"out/bench/{name}.json"))
    if docs:
        parser.add_argument("--docs", type=Path, default=Path(), help="a checkout, whose page is rewritten")
    return parser


def write(out: Path, result: Any) -> None:
    """Write a result as JSON."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def verdict(problems: Sequence[str]) -> int:
    """Print violations; return the exit code."""
    for problem in problems:
        print(f"does not hold: {problem}", file=sys.stderr)
    return 1 if problems else 0
