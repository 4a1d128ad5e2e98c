"""``gpu-spot deploy --local`` ends with what the stack will do, entry by entry."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_spot.forecast import outline
from gpu_spot.review.comment import comment
from gpu_spot.review.environments import review_environments
from infra.settings import load_settings
from tests.infra import training
from tests.infra.declared import ROOT
from tests.infra.test_refusals import STACKS, stack_file
from tests.review.test_comment import huge

WIDE: dict[str, Any] = {
    "name": "chat",
    "image": f"w@sha256:{'0' * 64}",
    "capacity": {"kind": "mixed-asg", "target": 2, "max": 6, "instanceTypes": ["g6.12xlarge"]},
    "gpusPerWorker": 2,
    "secrets": {"HF_TOKEN": "team/hf"},
    "permissions": [{"actions": ["s3:GetObject"], "resources": ["arn:aws:s3:::models/*"]}],
    "queue": {"kind": "sqs", "existing": {"queue": "q", "deadLetters": "d"}},
    "scaling": {"min": 1},
}


def test_a_row_has_workers_callers_permissions_and_what_is_unchecked() -> None:
    raw = {**STACKS["dev"], "gpu-spot:services": [WIDE], "gpu-spot:training": [training.job()]}
    service, job = (dict(zip(outline.HEAD, row, strict=True)) for row in outline.rows(load_settings(raw)))
    assert service["runs"] == "4 workers × 2 GPUs, up to 10 by its load"
    assert service["who may call it"] == "who may send to an existing queue (SQS)"
    assert service["on AWS it may"] == "s3:GetObject; read team/hf"
    assert service["at most an hour"].startswith("$")
    assert "that the queue exists" in service["not checked"]
    assert "that its secrets exist" in service["not checked"]
    assert job["weights and data"] == "s3://datasets/imagenet/, copied; checkpoints: volume"
    assert job["on AWS it may"] == "nothing of its own"
    assert "that the volume holds the dataset" in job["not checked"]


def test_a_queue_on_the_broker_of_another_service_is_the_stacks() -> None:
    _, shares = (
        dict(zip(outline.HEAD, one, strict=True)) for one in outline.rows(load_settings(stack_file("ocr")))
    )
    assert shares["who may call it"] == "who may send to the stack's queue (RabbitMQ)"
    assert "queue" not in shares["not checked"]


SAMPLES = sorted(path.name.split(".")[1] for path in (ROOT / "stacks").glob("Pulumi.*.yaml"))


@pytest.mark.parametrize("stack", SAMPLES)
def test_every_sample_has_its_rows(stack: str) -> None:
    settings = load_settings(stack_file(stack))
    entries = (*settings.services, *settings.jobs, *settings.shared_hosts)
    assert [row.entry for row in outline.rows(settings)] == [entry.name for entry in entries]
    assert "an hour" in outline.total(settings)
    forecast = f"**$5 a month**\n\n{outline.markdown(settings)}"
    text = comment(review_environments([huge(stack, 1)], {stack: forecast}))
    folded, _, shown = text.partition("</details>\n\n### What will happen\n\n")
    assert "$5" in folded
    table = [line.split(" | ")[0].strip("| ") for line in shown.splitlines()]
    assert table[2 : 2 + len(entries)] == [entry.name for entry in entries]


def test_what_a_stack_file_says_is_no_markdown_and_no_mention_in_a_comment() -> None:
    secrets = {"A": "team/@everyone", "B": "a_+=_b", "C": "all/x@y"}
    schedule = {"at": "cron(0 2 * * ? *)"}
    job = training.job(secrets=secrets, schedule=schedule, permissions=[WIDE["permissions"][0]])
    actions = {"actions": ["s3:Get*", "s3:List*"], "resources": ["*"]}
    service = {**WIDE, "secrets": secrets, "permissions": [actions]}
    text = outline.markdown(
        load_settings({**STACKS["dev"], "gpu-spot:services": [service], "gpu-spot:training": [job]})
    )
    assert "@" not in text
    assert "read team/·everyone, a_+=_b, all/x·y" in text
    assert r"s3:Get\*; s3:List\*" in text
    assert r"at cron(0 2 \* \* ? \*) (UTC)" in text
    assert "s3://datasets/imagenet/, copied" in text
    assert "$" in text
