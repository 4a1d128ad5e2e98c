"""Markets of the benchmarks: those of the traces' README or of the model; and common arguments."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from market.supply.drawn_market import draw
from market.supply.trace import PoolTrace, load
from research.parts import needs
from research.parts.page import pictured, replace_part
from research.parts.run import parser_of, write

Source: TypeAlias = Literal["traces", "model"]


@dataclass(frozen=True)
class Scenario:
    """A market, its target, and the number of instances per sample."""

    name: str
    traces: tuple[PoolTrace, ...]
    target: int
    pool_size: int | None = None


_PROBED = "availability/1-node/aws-02-15-2023"
_SIZES = "availability/1-node/aws-10-26-2022"
_FOUR = "preemption/4-node/aws-08-03-2023"
_HELD_OUT = "preemption/1-node/aws-04-22-2023"
# name, folder, file pattern, target, pool size
_README: tuple[tuple[str, str, str, int, int | None], ...] = (
    ("us-west-2 x3 N=4", _PROBED, "us-west-2*.json", 4, None),
    ("us-east-1 x4 N=4", _PROBED, "us-east-1*.json", 4, None),
    ("v100_1 x2 N=4", _SIZES, "*_v100_1.json", 4, None),
    ("v100_8 x2 N=4", _SIZES, "*_v100_8.json", 4, None),
    ("4-node x3 N=4", _FOUR, "*.json", 4, None),
    ("4-node x3 N=8", _FOUR, "*.json", 8, None),
    ("preempt x4 N=2 pool size 1", _HELD_OUT, "*.json", 2, 1),
    ("preempt x4 N=4 pool size 8", _HELD_OUT, "*.json", 4, 8),
)


def real(root: Path) -> list[Scenario]:
    """Return the scenarios of the traces' README; raise ``TraceError`` if the folder lacks one."""
    return [
        Scenario(name, load(_files(root / folder, pattern)), target, size)
        for name, folder, pattern, target, size in _README
    ]


def modelled(days: float = 30, seeds: Iterable[int] = (1, 2, 3, 4)) -> list[Scenario]:
    """Return markets of three pools drawn from the fitted model."""
    return [Scenario(f"model {seed} x3 N=4", draw(3, 24 * days, seed), 4) for seed in seeds]


def parser(doc: str | None, name: str, seeds: int) -> argparse.ArgumentParser:
    """Return the common arguments of the scenario benchmarks; ``seeds`` is a default."""
    options = parser_of(doc, name, docs=True)
    options.add_argument("--seeds", type=int, default=seeds, help=f"how many, from 1 on ({seeds})")
    options.add_argument("--scenarios", type=int, help="only the first so many")
    return options


def chosen(max_scenarios: int | None, days: float = 30) -> tuple[Source, list[Scenario]]:
    """Return the scenarios and their source (the traces if their folder is set), and print the source."""
    root = needs.traces_or_model()
    return "traces" if root else "model", (real(root) if root else modelled(days))[:max_scenarios]


def finish(
    args: argparse.Namespace,
    part: str,
    result: Mapping[str, Any],
    text: str,
    *,
    pictures: Mapping[str, str] | None = None,
    is_whole: bool = True,
) -> None:
    """Write a result and print its text; replace its part of the page if all scenarios of the traces ran."""
    write(args.out, result)
    print(f"{len(result['scenarios'])} scenarios of the {result['source']} → {args.out}\n\n{text}")
    if is_whole and result["source"] == "traces" and args.scenarios is None:
        pictured(args.docs, pictures or {})
        replace_part(args.docs, part, text)


def seeds_text(count: int) -> str:
    """Return the seeds from 1 on in words."""
    return "seed 1" if count == 1 else f"seeds 1 to {count}"


def _files(folder: Path, pattern: str) -> Iterable[Path]:
    return sorted(folder.glob(pattern)) or [folder / pattern]  # load reports missing files
