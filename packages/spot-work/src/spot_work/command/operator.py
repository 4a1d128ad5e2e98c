"""``spot-work status``, ``spot-work dead-letters`` and ``spot-work resend``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from spot_work import transports
from spot_work.command.inspector import DeadLetter, QueueInspector, QueueStatus
from spot_work.errors import WorkError

_UNKNOWN: Final = "unknown"

JsonOutput = dict[str, Any]
"""What a subcommand prints with ``--json``."""


def status(inspector: QueueInspector, options: argparse.Namespace) -> tuple[JsonOutput, list[str]]:
    """Return a queue's status, as JSON and as lines."""
    queue = inspector.status()
    return asdict(queue), _status_lines(queue)


def dead_letters(inspector: QueueInspector, options: argparse.Namespace) -> tuple[JsonOutput, list[str]]:
    """Return the dead letters, as JSON and as lines."""
    listed = inspector.dead_letters()
    output = {"queue": options.queue, "dead_letters": [asdict(letter) for letter in listed]}
    if not listed:
        return output, ["no dead letters"]
    rows = [("id", "reason", "since", "bytes"), *map(_row, listed)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return output, lines


def resend(inspector: QueueInspector, options: argparse.Namespace) -> tuple[JsonOutput, list[str]]:
    """Send dead letters again; ``error`` of the output names what was not sent."""
    ids = None if options.all else dict.fromkeys(options.ids)
    sent, error = list[str](), ""
    try:
        sent.extend(inspector.resend(ids))
    except (WorkError, ConnectionError, KeyboardInterrupt) as failure:
        error = str(failure) or "interrupted; the others stay"
    missing = [id_ for id_ in ids or () if id_ not in sent]
    if missing and not error:
        error = f"no dead letter {', '.join(missing)}; spot-work dead-letters lists them"
    output = {"queue": options.queue, "resent": sent, "error": error}
    return output, [*map(_printable, sent), f"{len(sent)} sent again"]


_COMMANDS: Final[dict[str, tuple[Callable[..., tuple[JsonOutput, list[str]]], str]]] = {
    "status": (status, "requests waiting and in work, consumers, oldest wait, dead letters"),
    "dead-letters": (dead_letters, "list the dead letters; they stay in their queue"),
    "resend": (resend, "send dead letters again, and remove them"),
}
NAMES: Final = tuple(_COMMANDS)
"""The subcommands."""

HELP: Final = "\n".join(f"  spot-work {name:<14} {text}" for name, (_, text) in _COMMANDS.items())


def main(arguments: Sequence[str], url: str, queue: str) -> int:
    """Run a subcommand; ``queue`` is the default of ``--queue``, which is required if it is empty.

    Returns:
        0: done; 1: the broker refuses or is unreachable, or a dead letter was not sent again; 2: an argument
        is invalid.
    """
    name = arguments[0]
    run, text = _COMMANDS[name]
    parser = argparse.ArgumentParser(f"spot-work {name}", description=f"{text.capitalize()}.")
    parser.add_argument("--queue", default=queue or None, required=not queue, help="name of the queue")
    parser.add_argument("--json", action="store_true", help="print JSON; null is unknown")
    if name == "resend":
        parser.add_argument("ids", metavar="ID", nargs="*", help="id of a dead letter")
        parser.add_argument("--all", action="store_true", help="all dead letters of this moment")
    options = parser.parse_args(arguments[1:])
    if name == "resend" and bool(options.ids) == options.all:
        parser.error("name either ids or --all")
    if not url:
        parser.error(f"SPOT_WORK_URL is not set; set it to {transports.URLS}")
    try:
        inspector = transports.inspector(url, options.queue)
    except (ImportError, ValueError) as error:
        parser.error(str(error))
    try:
        output, lines = run(inspector, options)
    except (WorkError, ConnectionError) as error:
        return _fail(str(error))
    finally:
        inspector.close()
    _print(json.dumps(output, indent=2) if options.json else "\n".join(lines))
    return _fail(output["error"]) if output.get("error") else 0


def _fail(text: str) -> int:
    print(f"spot-work: {_printable(text)}", file=sys.stderr)  # noqa: T201 - a command
    return 1


def _print(text: str) -> None:
    print(text)  # noqa: T201 - a command


def _status_lines(queue: QueueStatus) -> list[str]:
    oldest = queue.oldest_seconds
    rows = {
        "waiting": queue.waiting,
        "in work": queue.in_work,
        "consumers": queue.consumers,
        "oldest wait": None if oldest is None else f"{oldest:.0f} s",
        "dead letters": queue.dead_letters,
    }
    return [
        f"queue {queue.queue}",
        *(f"  {name:<14}{_UNKNOWN if value is None else value}" for name, value in rows.items()),
    ]


def _row(letter: DeadLetter) -> tuple[str, str, str, str]:
    since = _UNKNOWN
    if letter.time is not None:
        since = datetime.fromtimestamp(letter.time, UTC).isoformat(timespec="seconds")
    return _printable(letter.id) or "-", _printable(letter.reason) or _UNKNOWN, since, str(letter.size)


def _printable(text: str) -> str:
    """Return a text of a message without control characters, which a terminal would obey."""
    return "".join(character if character.isprintable() else "?" for character in text)
