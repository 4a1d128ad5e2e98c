"""Policies for interruptions, failures and grace periods in the rendered manifests."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from moto.ec2.models.instance_types import INSTANCE_TYPES

from contracts.limits import DrainSeconds
from infra.catalogue.accelerators import CATALOGUE
from infra.catalogue.instance_sizes import INSTANCE_SIZES, InstanceSize
from infra.kubernetes import pod_resources, pods
from infra.kubernetes.context import Manifest
from infra.kubernetes.jobs import EXHAUSTED_EXIT_CODE, FATAL_EXIT_CODES, LIVES, STOPPED_EXIT_CODE
from infra.kubernetes.pods import CONTAINER
from spot_training.nodes.membership import NodeLimits, limits_of
from tests.kubernetes.entries import JOB, SNAPSHOT, of_kind, rendered, variants


def verdict(job: Manifest, *, disrupted: bool = False, code: int = 0, container: str = CONTAINER) -> str:
    """Return ``done``, the action of the first matching rule, or ``counted`` without one."""
    if not disrupted and code == 0:
        return "done"
    for rule in job["spec"]["podFailurePolicy"]["rules"]:
        conditions, codes = rule.get("onPodConditions", ()), rule.get("onExitCodes")
        if disrupted and any(condition["type"] == "DisruptionTarget" for condition in conditions):
            return str(rule["action"])
        if (
            codes
            and codes["containerName"] == container
            and codes["operator"] == "In"
            and code in codes["values"]
        ):
            return str(rule["action"])
    return "counted"


@pytest.mark.parametrize(
    ("disrupted", "code", "action"),
    [
        (True, STOPPED_EXIT_CODE, "FailIndex"),
        (True, 137, "FailIndex"),
        (True, 127, "FailIndex"),  # the image was never pulled on a node that was removed
        (False, STOPPED_EXIT_CODE, "FailIndex"),
        (False, EXHAUSTED_EXIT_CODE, "FailJob"),
        (False, 1, "counted"),
        (False, 137, "counted"),  # killed for memory
        (False, 139, "counted"),
        (False, 126, "FailJob"),
        (False, 127, "FailJob"),
        (False, 0, "done"),
    ],
)
def test_a_disruption_begins_the_next_life_and_a_fatal_code_fails_the_job(
    disrupted: bool, code: int, action: str
) -> None:
    assert verdict(of_kind(variants()["both"], "Job"), disrupted=disrupted, code=code) == action


@pytest.mark.parametrize(
    ("code", "action"), [(STOPPED_EXIT_CODE, "FailIndex"), (EXHAUSTED_EXIT_CODE, "FailJob"), (1, "counted")]
)
def test_an_end_of_the_checkout_is_judged_by_its_code(code: int, action: str) -> None:
    assert verdict(of_kind(variants()["both"], "Job"), code=code, container="checkout") == action


def test_a_job_is_done_with_one_life_and_has_one_pod_at_a_time() -> None:
    spec = of_kind(variants()["both"], "Job")["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", LIVES, 1)
    assert spec["successPolicy"] == {"rules": [{"succeededCount": 1}]}
    # The pod after the last failure that counts says so (checkout.sh): without it the next life would begin.
    assert spec["backoffLimitPerIndex"] == 6
    # Of a pod that its node rejects no script and no rule knows the number.
    assert spec["backoffLimit"] == LIVES
    assert "maxFailedIndexes" not in spec


def test_surviving_nodes_are_parallel_lives_of_a_job() -> None:
    one, several = (of_kind(variants()[name], "Job") for name in ("both", "surviving nodes"))
    expected = {**one["spec"], "completions": 4 * LIVES, "backoffLimit": 4 * LIVES, "parallelism": 4}
    assert {key: value for key, value in several["spec"].items() if key != "template"} == {
        key: value for key, value in expected.items() if key != "template"
    }
    [work] = several["spec"]["template"]["spec"]["containers"]
    environment = {item["name"]: item for item in work["env"]}
    assert limits_of(environment["SPOT_TRAINING_NODES"]["value"]) == NodeLimits(2, 4)
    index = "metadata.labels['batch.kubernetes.io/job-completion-index']"
    assert environment["SPOT_TRAINING_NODE"]["valueFrom"]["fieldRef"]["fieldPath"] == index
    kinds = {item["kind"] for item in variants()["surviving nodes"]}
    assert not {"TrainJob", "TrainingRuntime"} & kinds
    most = of_kind(rendered(job={"nodes": {"min": 1, "max": 64}}), "Job")["spec"]
    assert (most["completions"], most["backoffLimit"], most["parallelism"]) == (64 * LIVES, 64 * LIVES, 64)


def test_experiments_fail_independently() -> None:
    job = of_kind(variants()["matrix"], "Job")
    spec = job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 4, 4)
    assert (spec["backoffLimitPerIndex"], spec["maxFailedIndexes"]) == (5, 4)
    assert "backoffLimit" not in spec  # the sum over all indexes would end the others
    assert verdict(job, code=FATAL_EXIT_CODES[0]) == "FailIndex"
    assert verdict(job, disrupted=True) == verdict(job, code=STOPPED_EXIT_CODE) == "Ignore"


def test_experiments_that_share_capacity_run_one_after_another() -> None:
    spec = of_kind(variants()["shared matrix"], "Job")["spec"]
    assert (spec["completions"], spec["parallelism"]) == (25, 3)


def test_rules_of_the_api_server_that_no_schema_has() -> None:
    """Source: validation of batch/v1 in the API server."""
    for name, items in variants().items():
        for job in (item for item in items if item["kind"] == "Job"):
            spec = job["spec"]
            pod, policy = spec["template"]["spec"], spec["podFailurePolicy"]
            assert pod["restartPolicy"] == "Never", name
            names = {item["name"] for item in (*pod["containers"], *pod["initContainers"])}
            for rule in policy["rules"]:
                codes = rule.get("onExitCodes")
                assert (codes is None) != ("onPodConditions" not in rule), name
                if codes:
                    assert codes["containerName"] in names
                    assert codes["values"] == sorted({*codes["values"]} - {0})
                if rule["action"] == "FailIndex":
                    assert "backoffLimitPerIndex" in spec
            assert spec.get("parallelism", 1) <= spec.get("completions", 1)


@pytest.mark.parametrize(
    "changes", [{}, {"maxRestarts": 7}, {"revision": "f" * 40}, {"matrix": {"SEED": [1, 2]}}, {"nodes": 2}]
)
def test_an_entry_has_one_job_whatever_it_runs(changes: dict[str, Any]) -> None:
    """Two Jobs of an entry would train in the same folder."""
    [name] = [
        item["metadata"]["name"] for item in rendered(job=changes) if item["kind"] in ("Job", "TrainJob")
    ]
    assert name == "resnet"


def test_a_revision_and_its_experiments_name_the_run() -> None:
    names = [
        of_kind(rendered(job=changes), "ConfigMap")["metadata"]["name"]
        for changes in (
            {"matrix": {"SEED": [1, 2]}},
            {"matrix": {"SEED": [1, 2]}, "maxRestarts": 7},
            {"matrix": {"SEED": [2, 1]}},
            {"matrix": {"SEED": [1, 3]}},
            {"matrix": {"SEED": [1, 2]}, "revision": "f" * 40},
        )
    ]
    assert names[0] == names[1] == names[2]
    assert len({*names}) == 3


def test_a_run_on_several_nodes_restarts_after_a_disruption_without_counting_it() -> None:
    runtime = of_kind(variants()["nodes"], "TrainingRuntime")["spec"]
    jobs = runtime["template"]["spec"]
    [node] = jobs["replicatedJobs"]
    policy = node["template"]["spec"]["podFailurePolicy"]["rules"]
    assert {rule["action"] for rule in policy} == {"FailJob"}
    [rule] = jobs["failurePolicy"]["rules"]
    assert rule["action"] == "RestartJobSetAndIgnoreMaxRestarts"
    assert rule["onJobFailureReasons"] == ["PodFailurePolicy"]
    assert node["template"]["spec"]["backoffLimit"] == 1  # all but one may crash while the lost one saves
    assert len(node["name"]) <= 20  # Trainer 2.4
    assert of_kind(variants()["nodes"], "TrainJob")["spec"]["trainer"] == {"numNodes": 2, "numProcPerNode": 4}


def test_grace_periods_fit_the_notice() -> None:
    for items in variants().values():
        periods = {
            item["metadata"]["labels"]["gpu-spot/group"]: item["spec"]["template"]["spec"].get(
                "terminationGracePeriod"
            )
            for item in items
            if item["kind"] == "NodePool"
        }
        assert periods == {"ocr": "1810s", "resnet": None}
    [within] = [item for item in DrainSeconds.__metadata__ if hasattr(item, "maximum")]  # type: ignore[attr-defined]
    assert within.maximum <= pods.GRACE_SECONDS


def job_disruption(items: list[Manifest]) -> Manifest:
    """Return what Karpenter may do with a job's nodes; drift never ends one."""
    [pool] = [item for item in items if item["kind"] == "NodePool" and "resnet" in item["metadata"]["name"]]
    assert pool["spec"]["template"]["spec"]["expireAfter"] == "Never"
    disruption: Manifest = pool["spec"]["disruption"]
    assert any(
        (budget["nodes"], budget.get("schedule")) == ("0", None) and "Drifted" in budget["reasons"]
        for budget in disruption["budgets"]
    )
    return disruption


@pytest.mark.parametrize("variant", ["spot alone", "nodes"])
def test_nodes_of_jobs_without_a_fallback_or_of_several_are_not_consolidated(variant: str) -> None:
    disruption = job_disruption(variants()[variant])
    assert disruption["consolidationPolicy"] == "WhenEmpty"
    assert {*disruption["budgets"][0]["reasons"]} == {"Drifted", "Underutilized"}


def test_surviving_nodes_return_to_spot_while_enough_stay() -> None:
    disruption = job_disruption(variants()["surviving nodes"])
    assert disruption["consolidationPolicy"] == "WhenEmptyOrUnderutilized"
    moving = [budget for budget in disruption["budgets"] if budget["reasons"] == ["Underutilized"]]
    assert sorted(budget["nodes"] for budget in moving) == ["0", "2"]  # in their minutes, and at once


def test_a_job_on_demand_returns_to_spot_at_most_four_times_a_day() -> None:
    items = variants()["both"]
    disruption = job_disruption(items)
    assert disruption["consolidationPolicy"] == "WhenEmptyOrUnderutilized"
    [closed] = [budget for budget in disruption["budgets"] if "schedule" in budget]
    assert (closed["nodes"], closed["reasons"]) == ("0", ["Underutilized"])
    open_minutes = [minute for minute in range(24 * 60) if not is_active(closed, minute)]
    assert open_minutes == [hour * 60 + minute for hour in (0, 6, 12, 18) for minute in range(10)]
    # With do-not-disrupt Karpenter would delete the pod, not evict it (tests/cluster).
    assert "annotations" not in of_kind(items, "Job")["spec"]["template"]["metadata"]
    [service] = [item for item in items if item["kind"] == "NodePool" and "ocr" in item["metadata"]["name"]]
    assert service["spec"]["disruption"]["budgets"] == [{"nodes": "1"}]


def is_active(budget: Manifest, minute: int) -> bool:
    """Return whether a budget holds at a minute of a day, as Karpenter's ``IsActive`` reckons."""
    first, *rest = budget["schedule"].split()
    assert rest == ["*/6", "*", "*", "*"]
    hours, minutes = budget["duration"].removesuffix("m").split("h")
    since = minute - (int(hours) * 60 + int(minutes))
    hits = [day * 24 * 60 + hour * 60 + int(first) for day in (-1, 0) for hour in (0, 6, 12, 18)]
    return min((hit for hit in hits if hit > since), default=minute + 1) <= minute


@pytest.mark.parametrize(("variant", "kinds"), [("both", ["spot", "on-demand"]), ("spot alone", ["spot"])])
def test_on_demand_is_allowed_with_a_fallback(variant: str, kinds: list[str]) -> None:
    [pool] = [
        item
        for item in variants()[variant]
        if item["kind"] == "NodePool" and "resnet" in item["metadata"]["name"]
    ]
    [values] = [
        item["values"]
        for item in pool["spec"]["template"]["spec"]["requirements"]
        if item["key"] == "karpenter.sh/capacity-type"
    ]
    assert values == kinds


def test_pods_are_confined_and_cannot_get_credentials_of_their_node() -> None:
    for items in variants().values():
        for item in items:
            if item["kind"] == "EC2NodeClass":
                options = item["spec"]["metadataOptions"]
                assert (options["httpTokens"], options["httpPutResponseHopLimit"]) == ("required", 1)
            for pod in pods_of(item):
                assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
                assert not [volume for volume in pod["volumes"] if "hostPath" in volume]
                for container in (*pod["containers"], *pod.get("initContainers", ())):
                    context = container["securityContext"]
                    assert context["capabilities"] == {"drop": ["ALL"]}
                    assert context["allowPrivilegeEscalation"] is False


def pods_of(manifest: Manifest) -> list[Manifest]:
    spec: Any = manifest.get("spec", {})
    if manifest["kind"] == "TrainingRuntime":
        spec = spec["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    template = spec.get("template", {})
    return [template["spec"]] if "containers" in template.get("spec", {}) else []


def test_requests_are_the_capacity_less_the_reserve() -> None:
    # amazon-eks-ami: 4 processors reserve 60 + 10 + 5 + 5; 255 MiB + 11 for each of 110 pods.
    assert pod_resources.allocatable(InstanceSize(4, 16)) == (3920 - 500, 15155 - 255 - 1210 - 100 - 1024)
    requests = pod_resources.job_requests(["g6.xlarge", "g6e.xlarge"])
    assert (requests.gpus, requests.memory_mib) == (1, pod_resources.allocatable(InstanceSize(4, 16))[1])
    share = pod_resources.worker_requests(["g6.12xlarge"])
    whole = pod_resources.job_requests(["g6.12xlarge"])
    assert (share.gpus, whole.gpus) == (1, 4)
    assert 4 * share.memory_mib <= whole.memory_mib
    assert 4 * share.millicpu <= whole.millicpu


SUPPORTED = {
    name
    for name, entry in CATALOGUE.items()
    if entry.family.vendor == "nvidia" and entry.family.needs_ami is None
}


def test_every_type_has_a_size_and_each_allowed_one_room_for_a_pod() -> None:
    assert INSTANCE_SIZES.keys() == CATALOGUE.keys()
    for name in INSTANCE_SIZES.keys() & INSTANCE_TYPES.keys():
        description = INSTANCE_TYPES[name]
        size = description["VCpuInfo"]["DefaultVCpus"], description["MemoryInfo"]["SizeInMiB"] / 1024
        assert size == (INSTANCE_SIZES[name].vcpus, INSTANCE_SIZES[name].memory_gib), name
    assert all(min(pod_resources.allocatable(INSTANCE_SIZES[name])) > 2000 for name in SUPPORTED)


@pytest.mark.parametrize("name", sorted(SUPPORTED & INSTANCE_TYPES.keys()))
def test_karpenter_finds_room_for_a_whole_job_and_the_daemons(name: str) -> None:
    """As Karpenter computes a type of which it has seen no node, or no pod of that type would ever get one.

    Source: karpenter-provider-aws 1.14, ``pkg/providers/instancetype/types.go``.
    """
    [kubelet] = {
        json.dumps(one["spec"].get("kubelet", {})) for one in rendered() if one["kind"] == "EC2NodeClass"
    }
    reserved = json.loads(kubelet).get("kubeReserved", {}).get("memory")
    description = INSTANCE_TYPES[name]
    network, memory = description["NetworkInfo"], description["MemoryInfo"]["SizeInMiB"]
    card = network["NetworkCards"][network.get("DefaultNetworkCardIndex", 0)]
    addresses = card["MaximumNetworkInterfaces"] * (network["Ipv4AddressesPerInterface"] - 1) + 2
    memory -= 64 if description["ProcessorInfo"]["SupportedArchitectures"][0] == "arm64" else 0
    kube = 11 * addresses + 255 if reserved is None else int(reserved.removesuffix("Mi"))
    allocatable = memory - math.ceil(memory * 0.075) - kube - 100
    assert (
        allocatable - pod_resources.job_requests([name]).memory_mib >= 900
    )  # what daemons request, and more


@pytest.mark.parametrize(
    "change",
    [{"image": f"{JOB['image'][:-64]}{'3' * 64}"}, {"environment": {"LR": "0.2"}}, {"maxRestarts": 1}],
)
def test_another_template_is_another_train_job(change: dict[str, Any]) -> None:
    """Trainer updates no JobSet that runs: a runtime that changes under its name is not read again."""
    four = {**JOB["capacity"], "instanceTypes": ["g6.12xlarge", "g5.12xlarge"]}
    nodes = {"nodes": 2, "capacity": four}
    before, after = (rendered(job={**nodes, **one}) for one in ({}, change))
    names = [of_kind(items, "TrainingRuntime")["metadata"]["name"] for items in (before, after)]
    assert [of_kind(items, "TrainJob")["spec"]["runtimeRef"]["name"] for items in (before, after)] == names
    assert names[0] != names[1]


def test_the_quota_admits_a_whole_job() -> None:
    for name, items in variants().items():
        [group] = of_kind(items, "ClusterQueue")["spec"]["resourceGroups"]
        [flavor] = group["flavors"]
        quota = {item["name"]: item["nominalQuota"] for item in flavor["resources"]}
        assert quota["nvidia.com/gpu"] == 64
        for item in items:
            for pod in pods_of(item) if item["kind"] == "Job" else ():
                requests = pod["containers"][0]["resources"]["requests"]
                assert requests.keys() == quota.keys(), name
                assert int(requests["memory"][:-2]) <= int(quota["memory"][:-2])
    assert JOB["capacity"]["target"] == 1


@pytest.mark.parametrize(("more", "expected"), [({}, "xfs"), ({"fileSystem": "ext4"}, "ext4")])
def test_a_dataset_is_mounted_with_the_file_system_of_its_snapshot(
    more: dict[str, str], expected: str
) -> None:
    items = rendered(job={"datasets": [{"snapshot": SNAPSHOT, "path": "/data/circles", **more}]})
    assert of_kind(items, "StorageClass")["parameters"]["csi.storage.k8s.io/fstype"] == expected
