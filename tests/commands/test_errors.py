"""Errors of the command: a sentence and a status each, as JSON where asked, never a traceback."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import botocore.exceptions
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError

from gpu_spot import cli
from gpu_spot.errors import ExitStatus, UserError, aws_error
from gpu_spot.status import command
from tests.test_repository import ROOT


def refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "it says no"}}, "DescribeInstances")


ERRORS: list[tuple[Exception, ExitStatus, str]] = [
    (NoCredentialsError(), ExitStatus.AWS, "aws sso login"),
    (refused("ExpiredToken"), ExitStatus.AWS, "aws sso login"),
    (refused("UnauthorizedOperation"), ExitStatus.AWS, "role"),
    (refused("Throttling"), ExitStatus.AWS, "it says no"),
    (EndpointConnectionError(endpoint_url="https://x"), ExitStatus.AWS, "network"),
    (UserError("no Pulumi.yaml"), ExitStatus.INPUT, "no Pulumi.yaml"),
    (ValueError("--hours is -1"), ExitStatus.INPUT, "--hours"),
    (FileNotFoundError(2, "No such file", "x.json"), ExitStatus.INPUT, "x.json"),
    (KeyError("us-west-9"), ExitStatus.BUG, "bug"),
    (RecursionError("deep\nand deeper"), ExitStatus.BUG, "bug"),
    (AssertionError(), ExitStatus.BUG, "bug"),
]


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(("error", "status", "words"), ERRORS)
def test_an_error_is_a_line_and_a_status(
    error: Exception,
    status: ExitStatus,
    words: str,
    as_json: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def fails(args: Any) -> int:
        raise error

    monkeypatch.setattr(command, "run", fails)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cli.main(["status", *(["--json"] if as_json else [])]) == status
    output = capsys.readouterr()
    assert output.err.startswith("gpu-spot: ")
    assert output.err.count("\n") == 1
    assert words in output.err
    if as_json:
        document = json.loads(output.out)["error"]
        assert document == {"status": status, "kind": status.name.lower(), "message": output.err[10:-1]}
    else:
        assert output.out == ""
    files = list(tmp_path.iterdir())
    assert bool(files) == (status == ExitStatus.BUG)
    assert not files or (str(files[0]) in output.err and "Traceback" in files[0].read_text())


def test_every_error_of_the_sdk_that_is_about_credentials_has_the_remedy() -> None:
    names = re.compile(r"Credential|SSO|Token|Profile|AuthToken|Login")
    classes = [value for name, value in vars(botocore.exceptions).items() if names.search(name)]
    texts = {}
    for kind in classes:
        if isinstance(kind, type):
            error = kind.__new__(kind)
            Exception.__init__(error, "why")
            texts[kind.__name__] = str(aws_error("stack", error))
    assert [name for name, text in texts.items() if "aws sso login" not in text] == []


def test_the_page_has_every_status() -> None:
    text = (ROOT / "docs" / "commands.md").read_text("utf-8")
    table = text.split("## Exit status")[1].split("\n## ")[0]
    statuses = {
        int(number) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.M) for number in row.split(",")
    }
    assert statuses == set(ExitStatus)
