"""``gpu-spot new``: write the files of a project, so that a stack needs no checkout of gpu-spot."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from gpu_spot.commands import files
from gpu_spot.errors import UserError

_SAMPLES: Final = Path(__file__).with_name("samples")
"""Of an installed wheel; a checkout has the same files in its root."""
_CHECKOUT: Final = Path(__file__).resolve().parents[2]
_PROGRAM: Final = '''"""The program of the stack: all of it is declared by Pulumi.<stack>.yaml."""

from infra.program.stack import declare

declare()
'''


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser("new", help="write a project with a stack file, from a sample")
    parser.add_argument("directory", type=Path, help="new or empty directory of the project")
    parser.add_argument("--stack", default="dev", help="name of the stack (default: dev)")
    parser.add_argument("--sample", default="dev", choices=_samples(), help="sample to copy (default: dev)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the files; raise ``UserError`` if the directory has any."""
    directory: Path = args.directory
    files.check_directory_writable("directory", directory)
    if directory.exists() and any(directory.iterdir()):
        raise UserError(f"{directory} is not an empty directory; name a new one")
    project = (_root() / "Pulumi.yaml").read_text("utf-8").replace("main: infra/\n", "")
    sample = _root() / "stacks" / f"Pulumi.{args.sample}.yaml"
    texts = {
        "Pulumi.yaml": project.replace("virtualenv: .venv", "toolchain: pip\n    virtualenv: .venv"),
        "__main__.py": _PROGRAM,
        "requirements.txt": "gpu-spot\n",
        f"stacks/Pulumi.{args.stack}.yaml": sample.read_text("utf-8"),
    }
    for name, text in texts.items():
        files.write("directory", directory / name, text)
    sys.stdout.write(f"Next: cd {directory} && gpu-spot deploy --local --stack {args.stack}\n")
    return 0


def _root() -> Path:
    return _SAMPLES if _SAMPLES.is_dir() else _CHECKOUT


def _samples() -> list[str]:
    return sorted(file.name.split(".")[1] for file in (_root() / "stacks").glob("Pulumi.*.yaml"))
