"""The stack files of docs/guides.md are declared whole, and say what their text says."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from contracts import names
from gpu_spot.forecast import outline
from infra.settings import SettingsError, load_settings
from tests.infra.declared import ROOT, edited_stack, stack_of

PAGE = (ROOT / "docs" / "guides.md").read_text("utf-8")
FILES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def row(text: str) -> dict[str, Any]:
    settings = load_settings(yaml.safe_load(text)["config"])
    assert not [*settings.warnings()]
    [only] = outline.rows(settings)
    return dict(zip(outline.HEAD, only, strict=True))


def test_a_model_server_has_two_gpus_a_token_and_a_port_of_its_own() -> None:
    assert row(FILES[0])["runs"] == "4 workers × 2 GPUs"
    found = stack_of(yaml.safe_load(FILES[0])["config"])
    service = found.agent("chat-primary")["service"]
    assert service["gpusPerWorker"] == 2
    assert service["secrets"] == {"HF_TOKEN": "team/hugging-face"}
    assert "$(GPU_SPOT_PORT)" in service["command"]
    [secret] = found.statements("chat-instance")["OpenSecrets"]["Resource"]
    assert secret.endswith(":secret:team/hugging-face-??????")


def test_a_model_server_on_one_gpu_needs_two_settings_less() -> None:
    text = FILES[0].replace("      gpusPerWorker: 2\n", "").replace('--tensor-parallel-size, "2", ', "")
    assert row(text)["runs"] == "8 workers × 1 GPU"


def test_workers_behind_an_existing_queue_read_what_messages_name() -> None:
    assert row(FILES[1])["on AWS it may"] == "s3:GetObject"
    found = stack_of(yaml.safe_load(FILES[1])["config"])
    statements = found.statements("ocr-instance")
    assert statements["OfCommand1"]["Resource"] == ["arn:aws:s3:::scans/*"]
    assert statements["WorkOnQueue"]["Resource"] == ["arn:aws:sqs:us-west-2:123456789012:scans"]
    assert not found.of("Queue") or all("scans" not in name for name in found.of("Queue"))


def test_a_nightly_fine_tune_is_requested_by_a_schedule_and_begins_once_it_is() -> None:
    runs = "1 GPU, at cron(0 2 * * ? *) (Europe/Berlin), each done within PT6H; none during another run"
    assert row(FILES[2])["runs"] == runs
    found = stack_of(yaml.safe_load(FILES[2])["config"])
    schedule = found.the("Schedule", "tune-schedule")
    target = json.loads(schedule["target"]["input"])
    assert target["Name"] == "/gpu-spot/dev/groups/tune/firing"
    [written] = found.statements("tune-schedule")["RequestRun"]["Resource"]
    assert written.endswith(f":parameter{target['Name']}")
    assert {
        found.the("Parameter", f"tune-{leaf}")["insecureValue"] for leaf in ("request", "firing", "run")
    } == {"{}"}
    [read] = found.statements("tune-instance")["ReadRun"]["Resource"]
    assert read.endswith("/groups/tune/run")
    assert found.statements("controller-function")["StartRuns"]["Resource"] == [read]
    assert found.agent("tune-primary")["training"]["scheduled"]["keep"] == 7
    config = json.loads(found.the("Parameter", "tune-config")["insecureValue"])
    assert config["runs"] == {"deadlineAfter": 21_600}
    assert found.the("MetricAlarm", "tune-deadline")


def test_the_role_pulls_an_image_of_another_account_and_a_tenants_with_its_secret() -> None:
    config = yaml.safe_load(FILES[3])["config"]
    found = stack_of(config)
    account = "arn:aws:ecr:us-west-2:210987654321"
    assert found.statements("ocr-instance")["PullImages"]["Resource"] == [f"{account}:repository/ocr"]
    [secret] = found.statements("lab-instance")["OpenSecrets"]["Resource"]
    assert secret.endswith(":secret:lab/registry-??????")
    assert [*found.of("Repository")] == ["images-ocr"]
    config["gpu-spot:services"][0]["registrySecret"] = "lab/registry"
    with pytest.raises(SettingsError, match="registrySecret is not a known key"):
        load_settings(config)


def test_without_protection_only_the_storage_of_the_stack_file_must_be_emptied() -> None:
    found = edited_stack({"protect": False}, "prod")
    assert not [one["name"] for one in found.declared if one["protect"]]
    assert not any(table["deletionProtectionEnabled"] for table in found.of("Table").values())
    storage = found.settings["gpu-spot:storage"]
    kept = {name for name, bucket in found.of("Bucket").items() if not bucket.get("forceDestroy")}
    assert kept == {f"bucket-{one['name']}" for one in storage["buckets"]}
    assert len(found.of("Repository")) == len(storage["repositories"])


def test_what_stays_is_looked_for_by_the_stacks_tag() -> None:
    commands = re.findall(r"^aws ec2 describe-.* --filters Name=tag:(.*),Values=prod$", PAGE, re.M)
    assert commands == [names.TAG_STACK] * 2


FRAGMENTS = {
    "docs/training.md": ("training:", "nodes:"),
    "docs/datasets.md": ("datasets:", "prepare:"),
    "examples/optuna/README.md": ("training:",),
}


@pytest.mark.parametrize(
    ("page", "begin"), [(page, one) for page, parts in FRAGMENTS.items() for one in parts]
)
def test_a_part_of_a_job_is_such_as_a_stack_file_may_have(page: str, begin: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    [part] = [yaml.safe_load(one) for one in re.findall(rf"```yaml\n( *{begin}.*?)```", text, re.DOTALL)]
    job = {"name": "images", "repository": "https://git.example.org/team/training", "revision": "0" * 40}
    job |= {
        "command": ["train"],
        "capacity": {"kind": "mixed-asg", "target": 1, "instanceTypes": ["g6.xlarge"]},
    }
    job |= part["training"][0] if begin == "training:" else part
    points = [{"name": job["checkpoints"], "path": "/saved"}] if "checkpoints" in job else []
    network = {"cidr": "10.20.0.0/16", "zones": ["us-east-1a", "us-east-1b"]}
    config = {"aws:region": "us-east-1", "gpu-spot:network": network, "gpu-spot:training": [job]}
    assert load_settings({**config, "gpu-spot:storage": {"fileSystem": {"accessPoints": points}}}).training


def network_of_others() -> dict[str, Any]:
    """The setting for an existing VPC as docs/operations.md has it, with identifiers of the doubles."""
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    [text] = re.findall(r"`network: (\{vpcId:[^`]+)` uses an existing VPC", page)
    assert text.count("subnet-…") == 2
    for identifier in ("subnet-0000000a", "subnet-0000000b"):
        text = text.replace("subnet-…", identifier, 1)
    network: dict[str, Any] = yaml.safe_load(text.replace("vpc-…", "vpc-0000000a"))
    return network


def test_the_setting_for_an_existing_vpc_declares_no_other() -> None:
    found = edited_stack({"network": network_of_others()})
    assert not found.of("Vpc")
    assert not found.of("Subnet")
    [primary] = (group for name, group in found.of("Group").items() if name.endswith("-primary"))
    assert set(primary["vpcZoneIdentifiers"]) == {"subnet-0000000a", "subnet-0000000b"}


def test_the_entry_for_an_existing_cluster_is_declared_in_it() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text("utf-8").partition("## In an existing cluster")[2]
    text = page.partition("```yaml\n")[2].partition("```")[0].replace("sha256:…", f"sha256:{'0' * 64}")
    config = yaml.safe_load(text)["config"]
    [job] = config["gpu-spot:training"]
    job |= {"repository": "https://git.example.org/team/training", "revision": "0" * 40}
    job |= {"command": ["train"], "capacity": {"kind": "mixed-asg", "target": 1}}
    job["capacity"]["instanceTypes"] = ["g6.xlarge", "g5.xlarge"]
    files = {"fileSystem": {"accessPoints": [{"name": "checkpoints", "path": "/checkpoints"}]}}
    own = {"aws:region": "us-west-2", "gpu-spot:network": network_of_others(), "gpu-spot:services": []}
    found = stack_of({**own, "gpu-spot:storage": files, **config})
    assert not found.of("Cluster")
    assert not found.of("Vpc")
    [declared] = [one for one in found.declared if one["type"] == "kubernetes:batch/v1:Job"]
    [container] = declared["inputs"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == job["image"]
    [role] = {one["spec"]["role"] for one in found.of("EC2NodeClass").values()}
    assert role == "research-nodes"
