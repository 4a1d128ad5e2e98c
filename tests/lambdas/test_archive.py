"""The handlers as Lambda runs them: from the unpacked archive, with only boto3 in addition."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from contracts import names
from infra.archives import functions as archive

RUNTIME = ("boto3",)
"""What Lambda's Python runtime brings."""


def closure(*distributions: str) -> set[str]:
    """Return the distributions and all that they need, extras left out."""
    found: set[str] = set()
    waiting = list(distributions)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            needs = importlib.metadata.requires(name) or []
            waiting += [re.split(r"[\s<>=!~;\[(]", need)[0] for need in needs if "extra ==" not in need]
    return found


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """A folder that holds the runtime's packages as links, and none of ours."""
    folder = tmp_path / "runtime"
    folder.mkdir()
    for name in closure(*RUNTIME):
        for file in importlib.metadata.files(name) or []:
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (folder / top).exists():
                (folder / top).symlink_to(Path(str(file.locate())).parents[len(file.parts) - 1] / top)
    return folder


def test_the_handler_runs_in_a_clean_process(tmp_path: Path, runtime: Path) -> None:
    code = tmp_path / "code"
    for key, file in archive.sources().items():
        (code / key).parent.mkdir(parents=True, exist_ok=True)
        (code / key).write_bytes(file.read_bytes())
    module, _, function = names.CONTROLLER_HANDLER.rpartition(".")
    program = f"""
import sys
sys.path[:0] = [{str(code)!r}, {str(runtime)!r}]
import {module} as entry
records = [{{"messageId": "broken", "body": "no JSON"}}]
class Nothing:
    def run(self, events, seconds):
        return []
class Context:
    def get_remaining_time_in_millis(self):
        return 60_000
entry._controller = Nothing
print(entry.{function}({{"Records": records}}, Context()))
others = {{"pulumi", "pydantic", "rich", "moto", "infra", "gpu_spot", "market", "userdata"}}
foreign = sorted(others & set(sys.modules))
print(foreign)
print(entry.__file__)
print(sys.modules["aws_lambda_powertools"].__file__)
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        capture_output=True,
        text=True,
        env={"PATH": "", "AWS_DEFAULT_REGION": "us-west-2"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *logged, result, foreign, entry, powertools = done.stdout.splitlines()
    assert result == "{'batchItemFailures': [{'itemIdentifier': 'broken'}]}"
    assert foreign == "[]"
    assert Path(entry).is_relative_to(code)
    assert Path(powertools).is_relative_to(code)
    assert json.loads(logged[0])["message"] == "malformed event"


def test_the_clean_process_would_notice_a_foreign_import(runtime: Path) -> None:
    program = f"import sys; sys.path[:0] = [{str(runtime)!r}]\nimport pydantic_settings, pulumi"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, check=False)
    assert b"ModuleNotFoundError" in done.stderr
