"""Repositories of tests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

QUIET: Final = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def git(folder: Path, *arguments: str) -> str:
    """Run git with an author name; return its output."""
    argv = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.com"]
    argv += ["-c", "protocol.file.allow=always", *arguments]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, env={**os.environ, **QUIET})
    return done.stdout.strip()


def repository(folder: Path, **files: str) -> str:
    """Make a repository with a commit of ``files``, or add one to it; return the commit's id."""
    if not (folder / ".git").exists():
        folder.mkdir(parents=True)
        git(folder, "init", "-q")
        git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    for name, text in files.items():
        (folder / name).write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "-qm", "a change")
    return git(folder, "rev-parse", "HEAD")
