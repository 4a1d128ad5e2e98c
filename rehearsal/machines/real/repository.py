"""A git repository of a folder with one commit, whose id depends only on the files.

Objects are written in git's format (Pro Git, "Git Internals: Git Objects") without git, independent of its
version and configuration, the clock and the user.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_AUTHOR: Final = "gpu-spot <gpu-spot@example.org> 1767571200 +0000"
_FILE, _FOLDER = "100644", "40000"
_LEFT_OUT: Final = ("__pycache__",)


def made_of(folder: Path, at: Path) -> str:
    """Write a bare repository of the files below ``folder`` into ``at``; return the commit's id.

    Hidden files and caches are excluded. Raises ``FileNotFoundError`` for a folder without files.
    """
    objects: dict[str, bytes] = {}
    commit = _commit(_tree(folder, objects), objects)
    for name, body in objects.items():
        path = at / "objects" / name[:2] / name[2:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    (at / "refs/heads").mkdir(parents=True)
    (at / "refs/heads/main").write_text(f"{commit}\n")
    (at / "HEAD").write_text("ref: refs/heads/main\n")
    # A server only serves branch tips unless it allows requests by commit id.
    (at / "config").write_text(
        "[core]\n\trepositoryformatversion = 0\n\tbare = true\n[uploadpack]\n\tallowAnySHA1InWant = true\n"
    )
    return commit


def commit_of(folder: Path) -> str:
    """Return the id of the commit that ``made_of`` writes."""
    objects: dict[str, bytes] = {}
    return _commit(_tree(folder, objects), objects)


def _commit(tree: str, objects: dict[str, bytes]) -> str:
    text = f"tree {tree}\nauthor {_AUTHOR}\ncommitter {_AUTHOR}\n\nAs shipped\n"
    return _add(objects, "commit", text.encode())


def _tree(folder: Path, objects: dict[str, bytes]) -> str:
    """Add a folder recursively; entries are sorted by name, folders as if they ended with /."""
    entries: dict[str, tuple[str, str, str]] = {}
    for path in folder.iterdir():
        if path.name.startswith(".") or path.name in _LEFT_OUT:
            continue
        if path.is_dir():
            entries[f"{path.name}/"] = (_FOLDER, path.name, _tree(path, objects))
        else:
            entries[path.name] = (_FILE, path.name, _add(objects, "blob", path.read_bytes()))
    if not entries:
        raise FileNotFoundError(f"{folder}: has no files, a repository needs at least one")
    return _add(objects, "tree", _packed(entries))


def _packed(entries: Mapping[str, tuple[str, str, str]]) -> bytes:
    return b"".join(
        f"{mode} {name}\0".encode() + bytes.fromhex(inside)
        for _, (mode, name, inside) in sorted(entries.items(), key=lambda entry: entry[0].encode())
    )


def _add(objects: dict[str, bytes], kind: str, body: bytes) -> str:
    whole = f"{kind} {len(body)}\0".encode() + body
    name = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
    objects[name] = zlib.compress(whole)
    return name
