"""The stack files of docs/guides.md are declared whole, and say what their text says."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from gpu_spot.forecast import outline
from tests.infra.declared import ROOT, stack_of

FILES = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "guides.md").read_text("utf-8"), re.DOTALL)


def row(text: str) -> dict[str, Any]:
    from infra.settings import load_settings

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


def test_workers_behind_an_existing_queue_read_what_messages_name() -> None:
    assert row(FILES[1])["on AWS it may"] == "s3:GetObject"
    found = stack_of(yaml.safe_load(FILES[1])["config"])
    statements = found.statements("ocr-instance")
    assert statements["OfCommand1"]["Resource"] == ["arn:aws:s3:::scans/*"]
    assert statements["WorkOnQueue"]["Resource"] == ["arn:aws:sqs:us-west-2:123456789012:scans"]
    assert not found.of("Queue") or all("scans" not in name for name in found.of("Queue"))


def test_a_nightly_fine_tune_is_requested_by_a_schedule_and_begins_once_it_is() -> None:
    runs = "1 GPUs, at cron(0 2 * * ? *) (Europe/Berlin), each done within PT6H; none during another run"
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
