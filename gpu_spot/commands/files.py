"""Checks of files and directories that options name; an error names the option."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

_WRITABLE_FILE: Final = "a writable file"
_WRITABLE_DIRECTORY: Final = "a writable directory"

_Read = TypeVar("_Read")


def read(option: str, file: Path, allowed: str, reader: Callable[[str], _Read]) -> _Read:
    """Return ``reader`` applied to a file's text.

    A ``ValueError`` of ``reader`` becomes the reason in the error message.
    """
    try:
        return reader(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise _path_error(option, file, f"cannot be read ({_reason(error)})", allowed) from None
    except UnicodeDecodeError:
        raise _path_error(option, file, "is not UTF-8 text", allowed) from None
    except ValueError as error:
        raise _path_error(option, file, f"cannot be read ({error})", allowed) from None


def check_writable(option: str, file: Path | None) -> None:
    """Raise ``ValueError`` if a file cannot be written. Call it before long work."""
    if file is None:
        return
    if file.is_dir():
        raise _path_error(option, file, "is a directory", _WRITABLE_FILE)
    if os.access(file, os.F_OK) and not os.access(file, os.W_OK):
        raise _path_error(option, file, "is not writable", _WRITABLE_FILE)
    _check_directory(option, file, file.parent, _WRITABLE_FILE)


def check_directory_writable(option: str, directory: Path) -> None:
    """Raise ``ValueError`` if no file can be written in a directory, which may not exist yet."""
    _check_directory(option, directory, directory, _WRITABLE_DIRECTORY)


def write(option: str, file: Path, text: str) -> None:
    """Write a file; create its directory if necessary."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _path_error(option, file, f"cannot be written ({_reason(error)})", _WRITABLE_FILE) from None


def _check_directory(option: str, named: Path, directory: Path, allowed: str) -> None:
    existing = next(
        ancestor for ancestor in (directory, *directory.absolute().parents) if os.access(ancestor, os.F_OK)
    )
    if not existing.is_dir():
        raise _path_error(option, named, f"cannot be written, because {existing} is not a directory", allowed)
    if not os.access(existing, os.W_OK | os.X_OK):
        raise _path_error(option, named, f"cannot be written, because {existing} is not writable", allowed)


def _path_error(option: str, named: Path, problem: str, allowed: str) -> ValueError:
    return ValueError(f"{option}: {named} {problem}; name {allowed}")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
