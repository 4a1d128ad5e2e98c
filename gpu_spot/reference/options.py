"""``docs/options.md``: every option of every command, as its own parser has it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

_HEAD: Final = (
    "# Options\n\n"
    "Every command of `gpu-spot` with its options, written by `gpu-spot schema --options` from the commands' "
    "own parsers; `gpu-spot COMMAND --help` tells the same. What each is for: [the command](commands.md).\n"
)


def page(root: argparse.ArgumentParser) -> str:
    """Return the page of a whole command; sub-commands of sub-commands have sections of their own."""
    return "\n".join([_HEAD, *(_section(parser, about) for parser, about in _leaves(root, ""))])


def _leaves(parser: argparse.ArgumentParser, about: str) -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """Yield the parsers that run something, in the order of their names, each with its line of help."""
    for group in parser._actions:
        if isinstance(group, argparse._SubParsersAction):
            told = {choice.dest: choice.help or "" for choice in group._choices_actions}
            for name, each in sorted(group.choices.items()):
                yield from _leaves(each, told.get(name, ""))
            return
    yield parser, about


def _section(parser: argparse.ArgumentParser, about: str) -> str:
    lines = [f"## {parser.prog}", "", _sentence(about), ""]
    shown = [one for one in parser._actions if not isinstance(one, argparse._HelpAction)]
    if shown:
        lines += ["| option | what it is |", "|---|---|"]
        lines += [
            "| " + " | ".join(cell.replace("|", "\\|") for cell in _row(parser, one)) + " |" for one in shown
        ]
        lines.append("")
    if parser.epilog:
        lines += [_sentence(" ".join(parser.epilog.split())), ""]
    return "\n".join(lines)


def _row(parser: argparse.ArgumentParser, action: argparse.Action) -> tuple[str, str]:
    """Return what is typed, and what it is."""
    names = ", ".join(f"`{one}`" for one in action.option_strings)
    value = "" if action.nargs == 0 else _value(action)
    typed = f"{names} `{value}`" if names and value else names or f"`{value}`"
    # What a parser fills in by itself stands in the words as it does in --help.
    about = " ".join((action.help or "").split())
    values = {**vars(action), "prog": parser.prog}
    words = (about % values if "%" in about else about).replace("<", "&lt;")
    return typed, f"**needed**: {words}" if action.required else words


def _value(action: argparse.Action) -> str:
    more = " …" if action.nargs in ("+", "*") else ""
    if action.metavar is not None:
        return (action.metavar if isinstance(action.metavar, str) else action.metavar[0]) + more
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return (action.dest.upper() if action.option_strings else action.dest) + more


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "." if text else text
