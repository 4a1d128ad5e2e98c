"""Files and folders that options name: what is wrong with one is told with its option, in one line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

_A_FILE: Final = "a file that can be written"
_A_FOLDER: Final = "a folder that can be written in"

_Read = TypeVar("_Read")


def read(option: str, file: Path, allowed: str, reader: Callable[[str], _Read]) -> _Read:
    """Return what ``reader`` makes of a file's text; its ``ValueError`` says what the text is not."""
    try:
        return reader(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise _wrong(option, file, f"which cannot be read ({_reason(error)})", allowed) from None
    except UnicodeDecodeError:
        raise _wrong(option, file, "which is no text in UTF-8", allowed) from None
    except ValueError as error:
        raise _wrong(option, file, f"which cannot be read ({error})", allowed) from None


def can_write(option: str, file: Path | None) -> None:
    """Raise ``ValueError`` where no file can be written there; asked before work that takes long."""
    if file is None:
        return
    if file.is_dir():
        raise _wrong(option, file, "which is a folder", _A_FILE)
    if os.access(file, os.F_OK) and not os.access(file, os.W_OK):
        raise _wrong(option, file, "which may not be written", _A_FILE)
    _can_hold(option, file, file.parent, _A_FILE)


def can_hold(option: str, folder: Path) -> None:
    """Raise ``ValueError`` where no file can be written into such a folder, there or not there yet."""
    _can_hold(option, folder, folder, _A_FOLDER)


def write(option: str, file: Path, text: str) -> None:
    """Write a file, and its folder where there is none."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _wrong(option, file, f"which cannot be written ({_reason(error)})", _A_FILE) from None


def _can_hold(option: str, named: Path, folder: Path, allowed: str) -> None:
    there = next(one for one in (folder, *folder.absolute().parents) if os.access(one, os.F_OK))
    if not there.is_dir():
        raise _wrong(option, named, f"but {there} is no folder", allowed)
    if not os.access(there, os.W_OK | os.X_OK):
        raise _wrong(option, named, f"but {there} may not be written in", allowed)


def _wrong(option: str, named: Path, why: str, allowed: str) -> ValueError:
    return ValueError(f"{option} is {named}, {why}, allowed: {allowed}")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
