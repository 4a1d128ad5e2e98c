"""Boot data: what cloud-init gets on a GPU instance's first boot."""

from __future__ import annotations

import re
import textwrap
from dataclasses import asdict, dataclass
from pathlib import Path
from string import Template
from typing import Final

LIMIT_BYTES: Final = 16_384
"""Of user data before base64 (EC2 user guide, "Run commands when you launch an instance")."""

_HERE: Final = Path(__file__).parent
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:/-]*")


@dataclass(frozen=True, slots=True)
class BootSettings:
    """What the worker must be told. ``launch_hook`` is empty where the group has no such lifecycle hook."""

    region: str
    group: str
    registry_table: str
    slots: int
    launch_hook: str = ""


def render(settings: BootSettings) -> str:
    """Return the cloud-config.

    Raise ``ValueError`` for a value that YAML or systemd could misread and for a text that is too big, and
    ``KeyError`` for a name in the template that is not a setting.
    """
    values = {name: str(value) for name, value in asdict(settings).items()}
    for name, value in values.items():
        if not _PLAIN.fullmatch(value):
            raise ValueError(f"boot setting {name!r} is {value!r}, allowed: letters, digits and _ . : / -")
    worker = textwrap.indent((_HERE / "worker.py").read_text(encoding="utf-8").rstrip(), " " * 6)
    template = Template((_HERE / "boot.yaml.tmpl").read_text(encoding="utf-8"))
    text = template.substitute(values, worker=worker)
    if (size := len(text.encode())) > LIMIT_BYTES:
        raise ValueError(f"boot data is {size} bytes, allowed: at most {LIMIT_BYTES}")
    return text
