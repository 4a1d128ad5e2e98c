"""The handlers as Lambda runs them: from the unpacked archive and the layer, with nothing in addition."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from contracts import names
from infra.archives import functions as archive
from infra.archives import sdk
from infra.archives.zip_file import ROOT
from tests.waiting import run_process

ENVIRONMENT = {
    "PATH": "",
    "AWS_DEFAULT_REGION": "us-west-2",
    **dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "testing"),
}
_CLIENTS = {"aws", "client", "autoscaling", "cloudwatch", "dynamodb", "ec2", "secrets", "sns", "sqs", "ssm"}
"""Names of clients and their attributes in `lambdas/aws/`."""


def unpacked(files: dict[str, Path], folder: Path) -> Path:
    for key, file in files.items():
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(file.read_bytes())
    return folder


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The functions' archive, where Lambda unpacks it."""
    return unpacked(archive.sources(), tmp_path_factory.mktemp("task"))


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of the layer."""
    return unpacked(sdk.layer_sources(), tmp_path_factory.mktemp("opt")) / "python"


def isolated(program: str, *path: Path) -> subprocess.CompletedProcess[str]:
    text = f"import sys\nsys.path[:0] = {[str(folder) for folder in path]!r}\n{program}"
    command = [sys.executable, "-I", "-S", "-B", "-c", text]
    return run_process(command, env=ENVIRONMENT)


def called_operations() -> set[str]:
    """Return the names of methods that modules of `lambdas/aws/` call on clients, and names of paginators."""
    found = set()
    for path in (ROOT / "lambdas").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            owner = node.func.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if name.lstrip("_") in _CLIENTS:
                is_paginator = node.func.attr == "get_paginator"
                found.add(ast.literal_eval(node.args[0]) if is_paginator else node.func.attr)
    return {name for name in found if name.islower()} - {"get_paginator"}


def test_every_adapter_is_imported_from_the_archive_and_the_layer_alone(code: Path, runtime: Path) -> None:
    program = """
import importlib, pkgutil, lambdas, boto3, botocore
for module in pkgutil.walk_packages(lambdas.__path__, "lambdas."):
    importlib.import_module(module.name)
print(boto3.__version__, botocore.__version__, boto3.__file__)
"""
    done = isolated(program, code, runtime)
    assert done.returncode == 0, done.stderr
    boto3_version, botocore_version, location = done.stdout.split()
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    assert f"\nboto3=={boto3_version} " in lock
    assert f"\nbotocore=={botocore_version} " in lock
    assert Path(location).is_relative_to(runtime)


def test_the_layer_has_each_operation_that_is_called_and_no_other_service(code: Path, runtime: Path) -> None:
    program = f"""
import json, pathlib, botocore
from lambdas.handlers.runtime import client
made = {{service: client(service) for service in {sdk.FUNCTION_SERVICES!r}}}
data = pathlib.Path(botocore.__file__).parent / "data"
print(json.dumps([
    [sorted(one.meta.method_to_api_mapping) for one in made.values()],
    sorted(path.name for path in data.iterdir() if path.is_dir()),
]))
"""
    done = isolated(program, code, runtime)
    assert done.returncode == 0, done.stderr
    methods, services = json.loads(done.stdout)
    assert services == sorted(sdk.FUNCTION_SERVICES)
    called = called_operations()
    assert {"launch_instances", "describe_auto_scaling_groups", "update_item", "publish"} <= called
    assert called <= {name for names_of_one in methods for name in names_of_one}


def test_the_layer_has_the_services_that_get_a_client() -> None:
    made = {
        ast.literal_eval(node.args[0])
        for path in (ROOT / "lambdas" / "aws").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "client" and node.args
    }
    assert made == set(sdk.FUNCTION_SERVICES)


def test_the_layer_depends_only_on_the_pinned_packages(tmp_path: Path) -> None:
    built = sdk.build_layer(tmp_path)
    assert built == sdk.build_layer(tmp_path)
    with zipfile.ZipFile(built.path) as layer:
        keys = layer.namelist()
    assert keys == sorted(keys)
    assert all(key.startswith("python/") for key in keys)
    # 50 MB for direct upload, 250 MB for a function with its layers (Lambda guide, "Lambda quotas").
    assert built.path.stat().st_size < 8_000_000


def test_the_handler_runs_in_a_clean_process(code: Path, runtime: Path) -> None:
    module, _, function = names.CONTROLLER_HANDLER.rpartition(".")
    program = f"""
import {module} as entry
records = [{{"messageId": "broken", "body": "no JSON"}}]
class Nothing:
    def run(self, events, seconds, reporting):
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
    done = isolated(program, code, runtime)
    assert done.returncode == 0, done.stderr
    *logged, result, foreign, entry, powertools = done.stdout.splitlines()
    assert result == "{'batchItemFailures': [{'itemIdentifier': 'broken'}]}"
    assert foreign == "[]"
    assert Path(entry).is_relative_to(code)
    assert Path(powertools).is_relative_to(code)
    assert json.loads(logged[0])["message"] == "malformed event"


def test_the_clean_process_would_notice_a_foreign_import(runtime: Path) -> None:
    assert "ModuleNotFoundError" in isolated("import pydantic_settings, pulumi", runtime).stderr
