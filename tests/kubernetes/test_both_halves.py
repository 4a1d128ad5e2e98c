"""One entry, both halves: one key decides; image, command, paths, queue and identity are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from contracts.agent import config as agent
from contracts.agent.names import CODE_DIR, DATA_DIR, RUN_DIR
from infra.kubernetes import render
from infra.kubernetes.place import Object
from infra.program import agent_config
from infra.program.agent_config import InstancePlace
from infra.program.entries.service import agent_config as of_service
from infra.program.entries.service.kind import needs_of
from infra.program.entries.training import agent_config as of_training
from infra.program.entries.training.agent_config import KnownJob
from infra.schema import Service, Settings, Training
from tests.kubernetes import entries
from tests.kubernetes.entries import one
from userdata.agent.work.service import queue as told_queue
from userdata.agent.work.service import workers
from userdata.agent.work.training import variables

URL: Final = "amqps://user:password@broker"
HERE: Final = InstancePlace("us-west-2", "dev", "primary", None, "/logs")


def both(entry: str, **changes: Any) -> tuple[Service | Training, agent.Config, list[Object]]:
    """The entry's configuration on instances, and its objects on Kubernetes: one key is another."""
    here = entries.settings(**{entry: {**changes, "runsOn": "instances"}})
    there = entries.settings(**{entry: changes})
    left, right = ((told.training if entry == "job" else told.services)[0] for told in (here, there))
    assert left.model_dump(exclude={"runs_on"}) == right.model_dump(exclude={"runs_on"})
    place = entries.place(there)
    if isinstance(left, Service):
        work = of_service.work(left, place.queues.get("ocr"))
    else:
        known = KnownJob("jobs", file_system="fs-0123456789abcdef0", access_point="fsap-0123456789abcdef0")
        work = of_training.work(left, HERE.stack, known)
    only = there.model_copy(update={"services" if entry == "job" else "training": ()})
    return right, agent_config.build(left, HERE, "registry", work), render.objects(only, place)


def container(found: list[Object], kind: str) -> Object:
    [only] = one(found, kind)["spec"]["template"]["spec"]["containers"]
    return only  # type: ignore[no-any-return]


def expanded(arguments: list[str]) -> list[str]:
    """As the kubelet has them: ``$$`` is one."""
    return [each.replace("$$", "$") for each in arguments]


def told(container: Object) -> dict[str, str]:
    return {each["name"]: each["value"].replace("$$", "$") for each in container["env"] if "value" in each}


def test_a_job_has_its_image_command_place_and_variables() -> None:
    _, here, found = both("job")
    there, job = container(found, "Job"), here.training
    assert job is not None
    assert there["image"] == job.image
    assert expanded(there["command"])[4:] == list(job.command)
    assert there["workingDir"] == str(CODE_DIR / here.group)
    checkpoints = DATA_DIR / "checkpoints" / job.job
    done = variables.done_file(checkpoints, job.revision)
    wanted = variables.of_job(
        job.job, job.environment, DATA_DIR, RUN_DIR, checkpoints, checkpoints / ".artifacts", done
    )
    assert told(there) == {**wanted, "GPU_SPOT_GRACE_SECONDS": "110"}


def test_a_job_reads_and_writes_the_same_things_in_the_same_places() -> None:
    _, here, found = both("job")
    mounts = {each["name"]: each for each in container(found, "Job")["volumeMounts"]}
    [efs], [dataset] = here.efs, here.datasets
    assert mounts["checkpoints"]["mountPath"] == efs.path
    handle = one(found, "PersistentVolume")["spec"]["csi"]["volumeHandle"]
    assert handle == f"{efs.file_system}::{efs.access_point}"
    assert (mounts["dataset-0"]["mountPath"], mounts["dataset-0"]["readOnly"]) == (dataset.path, True)
    content = one(found, "VolumeSnapshotContent")["spec"]
    assert (content["source"], content["deletionPolicy"]) == ({"snapshotHandle": dataset.snapshot}, "Retain")


def test_an_experiment_has_the_variables_of_its_own() -> None:
    matrix = {"LR": ["0.1", "it's $HOME"], "SEED": ["1", "2"]}
    there = entries.settings(job={"environment": {}, "matrix": matrix})
    here = entries.settings(job={"environment": {}, "matrix": matrix, "runsOn": "instances"})
    table = one(render.objects(there, entries.place(there)), "ConfigMap")["data"]
    assert len(table) == len(here.jobs) == 4
    for job in here.jobs:
        [text] = [each for each in table.values() if f"GPU_SPOT_JOB={job.name}\n" in each]
        assert f"GPU_SPOT_CHECKPOINTS={DATA_DIR}/checkpoints/{job.name}\n" in text
        assert text.count("export ") == 4 + len(matrix)


def test_a_job_has_no_identity_on_either_half() -> None:
    _, _, found = both("job")
    spec = one(found, "Job")["spec"]["template"]["spec"]
    assert one(found, "ServiceAccount")["automountServiceAccountToken"] is False
    assert spec["automountServiceAccountToken"] is False
    assert spec["serviceAccountName"] == "resnet"
    assert spec["securityContext"] == {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000}


@pytest.mark.parametrize("kind", ["rabbitmq", "sqs"])
def test_a_worker_has_its_image_arguments_queue_and_variables(kind: str) -> None:
    queue = {"kind": "sqs"} if kind == "sqs" else entries.RABBITMQ
    entry, here, found = both("service", queue=queue)
    there, service = container(found, "Deployment"), here.service
    assert service is not None
    assert service.queue is not None
    assert there["image"] == service.image
    assert expanded(there["args"]) == list(service.command)
    assert "command" not in there  # the image's own entry point, as on instances
    wanted = {**workers.environment(workers.Slot(0, 0), RUN_DIR), **service.environment}
    wanted |= told_queue.environment(service.queue, URL)
    if kind == "rabbitmq":
        del wanted["SPOT_WORK_URL"]
        [secret] = [each for each in there["env"] if "valueFrom" in each]
        made = one(found, "SecretProviderClass")["spec"]
        assert secret["name"] == "SPOT_WORK_URL"
        assert secret["valueFrom"]["secretKeyRef"]["name"] == made["secretObjects"][0]["secretName"]
        assert f'objectName: "{service.queue.secret}"' in made["parameters"]["objects"]
    assert told(there) == wanted
    assert isinstance(entry, Service)
    assert needs_of(entry) >= {"queue" if kind == "rabbitmq" else "sqs"}


@pytest.mark.parametrize("kind", ["rabbitmq", "sqs"])
def test_what_scales_the_workers_looks_at_their_queue(kind: str) -> None:
    _, here, found = both("service", queue={"kind": "sqs"} if kind == "sqs" else entries.RABBITMQ)
    assert here.service is not None
    assert here.service.queue is not None
    spec = one(found, "ScaledObject")["spec"]
    metadata = spec["triggers"][0]["metadata"]
    assert metadata["queueURL" if kind == "sqs" else "queueName"] == here.service.queue.name
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (1, 7)
    assert "replicas" not in one(found, "Deployment")["spec"]  # it would be written back at each `up`
    assert spec["triggers"][1]["metadata"] == {
        "timezone": "UTC",
        "start": "0 8 * * 1,0",
        "end": "59 23 * * 1,0",
        "desiredReplicas": "2",
    }


def test_a_service_that_does_not_scale_has_its_target() -> None:
    _, _, found = both("service", scaling={**entries.SERVICE["scaling"], "dryRun": True})
    assert one(found, "Deployment")["spec"]["replicas"] == 4
    assert not [each for each in found if each["kind"] == "ScaledObject"]


def test_the_halves_are_each_other_s_rest() -> None:
    told: Settings = entries.settings(service={"runsOn": "instances"})
    assert ([*told.on_instances.capacities], [*told.on_kubernetes.capacities]) == (["ocr"], ["resnet"])
    assert Path(told.on_kubernetes.training[0].command[0]).name == "python"
