"""The pytest plugin loads nothing before it is asked, and holds one program."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pulumi_on_moto import Deployment, StackConfig, load
from pytest_pulumi_on_moto import OneProgram

EXAMPLE = Path(__file__).parents[1] / "example"
RUN = """
import json, pytest
code = pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]])
print(json.dumps({"code": int(code), "loaded": [name for name in ("moto", "pulumi") if name in sys.modules]}))
"""


def test_a_run_that_does_not_ask_for_it_imports_neither_moto_nor_pulumi(
    python: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "test_plain.py").write_text(
        "def test_it(pytestconfig):\n    assert pytestconfig.pluginmanager.hasplugin('pulumi_on_moto')\n"
    )
    said = json.loads(python(RUN, tmp_path).splitlines()[-1])
    assert said == {"code": 0, "loaded": []}


def test_the_example_passes_its_own_test(python: Callable[..., str]) -> None:
    printed = python(RUN, EXAMPLE)
    assert json.loads(printed.splitlines()[-1])["code"] == 0, printed
    assert "4 passed" in printed


def test_a_test_without_a_stack_fails_with_what_is_missing(
    python: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "test_plain.py").write_text("def test_it(pulumi_deployment):\n    pass\n")
    assert "pulumi_deployment needs a session fixture pulumi_stack" in python(RUN, tmp_path)


def test_all_tests_share_one_deployment_and_a_second_program_is_refused(
    pulumi_deployment: Deployment, pulumi_program: OneProgram, pulumi_stack: StackConfig
) -> None:
    assert pulumi_program.deployed(pulumi_stack) is pulumi_deployment
    with pytest.raises(pytest.UsageError, match="stack shop/dev: this process has deployed sample/dev"):
        pulumi_program.deployed(load(EXAMPLE, "dev"))
