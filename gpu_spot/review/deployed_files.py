"""Which tracked files a stack's preview depends on: the folders of what it imports, packs or installs.

``python3 -m gpu_spot.review.deployed_files`` reads paths, one a line, and prints those that change every
stack. It needs the standard library only, and runs on a checkout that nothing is installed in.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

ENTRY_POINTS: Final = ("infra/__main__.py", "policy/__main__.py")
"""What the engine runs: the program and the policy pack."""
_OF_ONE_STACK: Final = ("policy/config/", "stacks/")
_WORDS: Final = frozenset({".gitignore", ".pre-commit-config.yaml", "LICENSE"})
"""Files at the root that no command of a preview reads, beside Markdown."""


def deployed_folders(root: Path) -> frozenset[str]:
    """Return the folders at the root of all modules that the entry points import, directly or not.

    A tuple of packages in one of these modules is what an archive packs.
    """
    packages = {path.parent.name for path in root.glob("*/__init__.py")}
    waiting, followed, folders = [root / entry for entry in ENTRY_POINTS], set[Path | str](), set[str]()
    while waiting:
        path = waiting.pop()
        if path in followed or not path.is_file():
            continue
        followed.add(path)
        used = {path.relative_to(root).parts[0]}
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            imported = {*_imported(node)} - followed
            followed |= imported
            waiting += (file for name in imported for file in _files(root, name))
            if isinstance(node, ast.Tuple):
                names = {str(item.value) for item in node.elts if isinstance(item, ast.Constant)}
                used |= names if names and names <= packages else set()
        for folder in used - folders:
            # What is packed is imported elsewhere: by a function, or on an instance.
            waiting += (root / folder).rglob("*.py")
        folders |= used
    return frozenset(folders)


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def _files(root: Path, module: str) -> Iterator[Path]:
    for base in (root, *root.glob("packages/*/src")):
        path = base.joinpath(*module.split("."))
        yield from (path.with_suffix(".py"), path / "__init__.py")


def change_every_stack(paths: Iterable[str], root: Path) -> list[str]:
    """Return those of ``paths`` that may change every stack; others change one, or none.

    Without the entry points nothing can be computed: each path may.
    """
    if not all((root / entry).is_file() for entry in ENTRY_POINTS):
        return list(paths)
    folders = deployed_folders(root)
    return [
        path
        for path in paths
        if path.startswith(".github/")
        or ("/" not in path and not path.endswith(".md") and path not in _WORDS)
        or (path.partition("/")[0] in folders and not path.startswith(_OF_ONE_STACK))
    ]


if __name__ == "__main__":
    sys.stdout.writelines(
        f"{path}\n" for path in change_every_stack(sys.stdin.read().splitlines(), Path.cwd())
    )
