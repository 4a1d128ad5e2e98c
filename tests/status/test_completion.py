"""Completions of the bash script, from a real bash."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_spot import cli
from gpu_spot.commands import completion
from tests.waiting import run_process

ASK = """
source "$1"; shift
[[ $(complete -p gpu-spot) =~ -F\\ ([^ ]+) ]]
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
"${BASH_REMATCH[1]}" gpu-spot "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def sourced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    (folder / "reports").mkdir()
    script = folder / "gpu-spot.bash"
    script.write_text(completion.script(cli.parser(), "bash"), "utf-8")
    return script


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (("dr",), ["drill"]),
        (("re",), ["review"]),
        (("jobs", "re"), ["resume", "retry"]),
        (("drill", "--gr"), ["--group"]),
        (("review", "--out", "rep"), ["reports"]),
        (("completion", ""), ["bash", "zsh"]),
    ],
)
def test_bash_completes_commands_options_and_files(
    sourced: Path, typed: tuple[str, ...], offered: list[str]
) -> None:
    completed = run_process(
        ["bash", "--norc", "-c", ASK, "bash", sourced, "gpu-spot", *typed], cwd=sourced.parent, check=True
    )
    assert (sorted(completed.stdout.split()), completed.stderr) == (offered, "")


def test_the_command_prints_the_script_of_either_shell(capsys: pytest.CaptureFixture[str]) -> None:
    for shell, mark in (("bash", "-F _shtab_gpu_spot gpu-spot"), ("zsh", "#compdef gpu-spot")):
        assert cli.main(["completion", shell]) == 0
        output = capsys.readouterr().out
        assert mark in output
        assert "pin-images" in output
