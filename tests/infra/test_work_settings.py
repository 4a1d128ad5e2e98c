"""What any work may say of datasets, command and environment, and what of it is refused, by its key."""

from __future__ import annotations

from typing import Any

import pytest

from infra.settings import SettingsError
from tests.infra.test_refusals import IMAGE, JOB, ONE, SERVICE, settings, training

SNAPSHOT = "snap-0123456789abcdef0"
AMI = "ami-0123456789abcdef0"
TRAINIUM = ONE | {"instanceTypes": ["trn1.2xlarge"], "ami": AMI}


def datasets(*paths: str, **values: Any) -> list[dict[str, Any]]:
    return [{"snapshot": SNAPSHOT, "path": path, **values} for path in paths]


def service(**values: Any) -> dict[str, Any]:
    return {f"{SERVICE}/{key}": value for key, value in values.items()}


CASES: list[tuple[dict[str, Any], str, str]] = [
    # datasets
    (service(datasets=[{"path": "/data/a"}]), "services[0].datasets[0].snapshot", "missing"),
    (service(datasets=[{"snapshot": "vol-0123456789abcdef0", "path": "/data/a"}]),
     "services[0].datasets[0].snapshot", "text that matches"),
    *((service(datasets=datasets(path)), "services[0].datasets[0].path", "text that matches")
      for path in ("data/a", "/", "/etc/a", "/data", "/data/", "/data/../etc", "/data/.hidden", "/data/a b",
                   "/dltraining", "/dltraining/datasets", "/dltraining/checkpoints/resnet", "/database/a")),
    (service(datasets=datasets("/data/" + "a" * 128)), "services[0].datasets[0].path", "128"),
    (service(datasets=datasets("/data/a", "/data/a")), "services[0].datasets",
     "mount paths /data/a and /data/a overlap"),
    (service(datasets=datasets("/data/a/b", "/mnt/c", "/data/a")), "services[0].datasets",
     "mount paths /data/a and /data/a/b overlap"),
    (service(datasets=datasets(*(f"/data/{n}" for n in range(7)))), "services[0].datasets", "at most 6"),
    (service(datasets=datasets("/data/a", initializationRateMib=99)),
     "services[0].datasets[0].initializationRateMib", "at least 100"),
    (service(datasets=datasets("/data/a", initializationRateMiB=200)),
     "services[0].datasets[0].initializationRateMiB", "did you mean initializationRateMib?"),
    (service(datasets=datasets("/data/a", throughputMib=751)),
     "services[0].datasets[0].throughputMib", "at most 750"),
    (training(dataset="s3://datasets/imagenet/", datasets=datasets("/dltraining/datasets/a")),
     "training[0].dataset", "/dltraining/datasets overlap"),
    # the moving volume
    (training(snapshotEveryMinutes=1441), "training[0].snapshotEveryMinutes", "at most 1440"),
    (training(initializationRateMib=301), "training[0].initializationRateMib", "at most 300"),
    (training(initializationRateMib=0), "training[0].initializationRateMib", "at least 100"),
    (training(throughputMib=124), "training[0].throughputMib", "at least 125"),
    (training(throughputMib=751), "training[0].throughputMib", "at most 750"),
    (training(capacity=ONE | {"instanceTypes": ["p3.2xlarge"], "ami": AMI}),
     "training[0].capacity.instanceTypes", "AWS retired P3 in December 2025; use g5, g6 or p4d"),
    # commands and environments
    (training(maxRestarts=-1), "training[0].maxRestarts", "at least 0"),
    (training(maxRestarts=101), "training[0].maxRestarts", "at most 100"),
    (training(command=["", "train.py"]), "training[0].command",
     "allowed: a program and arguments without NUL"),
    (training(command=["python", "a\0b"]), "training[0].command", "allowed: a program and arguments"),
    (training(command=["x" * 4000], environment={"A": "y" * 100}), "training[0].command", "at most 4096"),
    (training(environment=["A=b"]), "training[0].environment", "a mapping of keys"),
    (training(environment={"A": 1}), "training[0].environment.A", "text"),
    (training(environment={"A=B": "c"}), "training[0].environment.A=B", "text that matches"),
    (training(environment={"1A": "c"}), "training[0].environment.1A", "text that matches"),
    (training(environment={"A": "b\nC=d"}), "training[0].environment.A", "text that matches"),
    (training(environment={"GPU_SPOT_SLOT": "0"}), "training[0].environment", "GPU_SPOT_SLOT is reserved"),
    (service(environment={"AWS_SECRET_ACCESS_KEY": "x"}), "services[0].environment", "allowed: names except"),
    (service(environment={"A": "y" * 5000}), "services[0].command", "at most 4096"),
    (service(command=["x"] * 65), "services[0].command", "at most 64"),
    (service(image=f"{'a' * 512}/{IMAGE}"), "services[0].image", "512"),
    (training(repository=f"https://example.com/{'a' * 512}"), "training[0].repository", "512"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "key", "says"), CASES)
def test_it_is_refused_by_its_key(changes: dict[str, Any], key: str, says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings("dev", changes)
    [line] = str(caught.value).splitlines()
    assert line.startswith(f"gpu-spot:{key}: ")
    assert says in line
    assert "allowed" in line or "missing" in line


def test_all_of_it_may_be_said_at_once() -> None:
    both = settings(
        "dev",
        service(
            image=IMAGE,
            command=["sh", "-c", "first\nsecond", "ünïcode", ""],
            environment={"MODEL": "llama = 3", "EMPTY": ""},
            datasets=datasets("/data/a", "/data/ab", "/mnt/c/d", "/dltraining/datasets/e"),
            reportsReadiness=True,
        )
        | training(
            datasets=datasets("/dltraining/datasets/a"),
            environment={"A": "b"},
            maxRestarts=0,
            throughputMib=750,
            initializationRateMib=100,
        ),
    )
    assert both.services[0].environment == {"MODEL": "llama = 3", "EMPTY": ""}
    assert both.training[0].max_restarts == 0
    # The copy of its own dataset and shared ones elsewhere.
    assert settings("dev", training(dataset="s3://datasets/a/", datasets=datasets("/data/a")))


def test_a_command_without_an_image_may_say_that_it_is_ready() -> None:
    assert settings("dev", service(command=["serve"], reportsReadiness=True)).services[0].reports_readiness


def test_a_job_on_trainium_is_no_nvidia_group() -> None:
    job = settings("dev", {"gpu-spot:training": [JOB | {"capacity": TRAINIUM}]}).training[0]
    assert not job.capacity.is_nvidia
