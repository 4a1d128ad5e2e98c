"""Every crash and every interleaving of the volume, played; ``python -m tests.node.damage`` prints JSON."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict

from tests.node import crash, interleave
from tests.node.crash import Case, Outcome, Soak
from tests.node.interleave import Play, RandomPlay


def main() -> None:
    played: dict[Case | Soak | Play | RandomPlay, Outcome] = {c: crash.play(c) for c in crash.cases()}
    played |= {Soak(seed): crash.soak(seed) for seed in range(crash.SOAKS)}
    played |= {play: interleave.play(play) for play in interleave.plays()}
    drawn = map(RandomPlay, range(interleave.RANDOM_PLAYS))
    played |= {play: interleave.play_at_random(play) for play in drawn}
    bad = [{"case": str(c), **asdict(o)} for c, o in played.items() if o.lost or o.orphaned or o.error]
    summary = {
        "cases": len(played),
        "interleavings": sum(isinstance(case, Play | RandomPlay) for case in played),
        "by_sequel": Counter(_outcome(case) for case in played),
        "lost": sum(o.lost for o in played.values()),
        "orphaned": sum(o.orphaned for o in played.values()),
        "unfinished": sum(bool(o.error) for o in played.values()),
        "bad": bad[:20],
    }
    sys.stdout.write(json.dumps(summary) + "\n")


def _outcome(case: Case | Soak | Play | RandomPlay) -> str:
    if isinstance(case, Play):
        return "two interleaved, one dies" if case.end == "dies" else "two interleaved"
    return "three at random" if isinstance(case, RandomPlay) else case.then


if __name__ == "__main__":
    main()
