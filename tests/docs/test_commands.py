"""Commands in the documentation exist, accept their options, and are run or listed as not verified.

They are run by test_quick_start.py, tests/forecast/test_commands.py, tests/real/test_docs_commands.py, CI.
"""

from __future__ import annotations

import argparse
import re
import shlex

import pytest

from docs.site.stage import ROOT, pages
from gpu_spot.cli import parser
from gpu_spot.reference import options
from tests.docs.commands import code_block_commands, prose_commands, unverified_commands
from tests.waiting import run_process

TYPED = list(code_block_commands())
GPU_SPOT = re.compile(r"^(?:\.venv/bin/)?gpu-spot +(.*?)(?: *[>|].*)?$")
# What is run; CI runs targets of make.
RUN = (
    *("make ", ".venv/bin/gpu-spot demo ", ".venv/bin/gpu-spot forecast "),
    "spot-training ",
    *("cd examples/ocr-service", "export SPOT_WORK_URL=", "OCR_MODEL=", "OCR_LINES_QUEUE="),
    "python client.py",
)


def test_every_command_is_run_or_listed_as_not_verified() -> None:
    listed = unverified_commands()
    neither = [one for one in TYPED if not one.line.startswith((*RUN, *listed))]
    assert not neither
    assert not [one for one in TYPED if one.line.startswith(RUN) and one.line.startswith(tuple(listed))]
    assert not [one for one in (*RUN, *listed) if not any(c.line.startswith(one) for c in TYPED)]


@pytest.mark.parametrize(
    "line", sorted({one.line for one in TYPED if GPU_SPOT.match(one.line)}), ids=lambda line: line[:60]
)
def test_documented_commands_parse(line: str) -> None:
    found = GPU_SPOT.match(line)
    assert found
    parser().parse_args(shlex.split(found[1]))


def test_what_pip_installs_from_a_checkout_is_there() -> None:
    prose = re.findall(r"`pip install ([^`]+)`", "".join(page.read_text("utf-8") for page in pages()))
    typed = [one.line for one in TYPED if one.line.startswith("pip install ")]
    folders = re.findall(r"(?<!\S)\./([\w/-]+)", " ".join([*prose, *typed]))
    assert len(folders) >= 2
    assert not [name for name in folders if not (ROOT / name / "pyproject.toml").is_file()]


def test_commands_in_prose_exist_with_their_options() -> None:
    whole, wrong = parser(), []
    for one in prose_commands():
        if not (found := GPU_SPOT.match(one.line)):
            continue
        at = whole
        for word in found[1].split():
            subs = [a for a in at._actions if isinstance(a, argparse._SubParsersAction)]
            if subs and not word.startswith("-") and word != "COMMAND":
                if word not in subs[0].choices:
                    wrong.append(one)
                    break
                at = subs[0].choices[word]
            elif word.startswith("--") and word.partition("=")[0] not in at._option_string_actions:
                wrong.append(one)
    assert not wrong


def test_every_documented_make_target_exists() -> None:
    said = run_process(["make", "-pRrq", ":"], cwd=ROOT)
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", said.stdout, re.M))
    benches = {
        f"bench-{path.stem.replace('_', '-')}"
        for path in (ROOT / "research").glob("*/*.py")
        if path.parent.name not in ("fit", "parts")
    }
    asked = [
        (one, word)
        for one in (*TYPED, *prose_commands())
        if one.line.startswith("make ")
        for word in shlex.split(one.line)[1:]
        if "=" not in word and not word.endswith(("-…", "-NAME"))
    ]
    assert asked
    assert not [one for one, word in asked if word not in targets | benches]


def test_the_page_of_options_is_the_commands_own() -> None:
    written = (ROOT / "docs" / "options.md").read_text("utf-8")
    assert written == options.page(parser()), "gpu-spot schema --options > docs/options.md"
