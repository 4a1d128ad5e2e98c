"""A full example of each text and item that is stored, and its value: no field is at its default."""

from __future__ import annotations

from typing import Any

from contracts.broker_users import BrokerQueue, BrokerRole, BrokerUser, ManagedBroker
from contracts.group.config import GroupConfig, PolicyChoice, RunRules
from contracts.group.health_settings import HealthSettings
from contracts.group.release import WorkerRelease, WorkerReleases
from contracts.group.release_settings import DesiredRelease
from contracts.group.replacement_requests import ReplacementRequest
from contracts.group.rollout_request import RolloutRequest
from contracts.group.scaling_settings import Floor, RequestLogSettings, ScalingSettings
from contracts.jobs.attempt import JobAttempt
from contracts.registry.batches import BatchRow
from contracts.registry.item import Progress, Worker
from contracts.registry.queue_state import QueueState
from contracts.registry.tenant_wait import TenantWait
from contracts.registry.worker_report import WorkerReport
from contracts.watched_queue import WatchedQueue
from lambdas.core.capacity.history import History, PoolRecord
from lambdas.core.capacity.memory import Memory
from lambdas.core.capacity.on_premises import OnPremisesOffset
from lambdas.core.deadline.experience import SampleStatistics
from lambdas.core.deadline.record import JobRecord
from lambdas.core.health.memory import (
    HealthMemory,
    OpenIncident,
    PendingSymptom,
    RemediationLogEntry,
    RemediationRecord,
)
from lambdas.core.health.model import Remedy
from lambdas.core.model import GroupRole, PurchaseOption
from lambdas.core.money.bill import Bill
from lambdas.core.queues.history import QueueHistory
from lambdas.core.rollout.comparison import Comparison, Paired, WorkerCounters
from lambdas.core.rollout.state import HostProgress, Rollout
from lambdas.core.scaling.batches import BatchTimes, LearnedBatches
from lambdas.core.scaling.dispersion import Dispersion
from lambdas.core.scaling.memory import ScalingMemory
from lambdas.core.scaling.profile import Profile
from lambdas.core.scaling.staffed_wait import StaffedWait
from lambdas.core.scaling.throughput import Throughput
from lambdas.core.scaling.waiting import WaitingEstimate
from userdata.agent.tenants.model import MigInstance, Slice, Tenant


def texts(**values: str) -> dict[str, Any]:
    """Return attributes of an item that are texts."""
    return {name: {"S": value} for name, value in values.items()}


def numbers(**values: str) -> dict[str, Any]:
    """Return attributes of an item that are numbers, word for word."""
    return {name: {"N": value} for name, value in values.items()}


DIGEST = "sha256:" + "a" * 64
RELEASE = WorkerRelease(f"registry.example/ocr@{DIGEST}", ("serve", "--fast"), {"BATCH": "8"})

CONFIG = GroupConfig(
    kind="mixed-asg",
    primary="dev-ocr-primary",
    fallback="dev-ocr-fallback",
    base=1,
    spot_percentage=80,
    maximum=8,
    slots={"g5.xlarge": 2},
    drain_seconds=30,
    break_before_make=True,
    policy=PolicyChoice("expected-cost", {"shortageCost": 30.5}),
    run="r1",
    reserved=2,
    block="cr-0123456789abcdef0",
    zones=("us-west-2a", "us-west-2b"),
    on_demand_prices={"g5.xlarge": 1.006},
    dataset="imagenet@2",
    prepared_by="imagenet-data",
    by_zone=True,
    deadline=1803920400.0,
    on_premises=4,
    on_premises_hosts={"gpu-1": 8},
    budget=120.5,
    own_prices={"g5.xlarge": 1.25},
    http_concurrency=16,
    runs=RunRules("wait", "skip", 21600.0),
)
CONFIG_TEXT = (
    '{"kind": "mixed-asg", "primary": "dev-ocr-primary", "fallback": "dev-ocr-fallback", "base": 1, '
    '"spotPercentage": 80, "max": 8, "slots": {"g5.xlarge": 2}, "drainSeconds": 30, "breakBeforeMake": true, '
    '"policy": {"name": "expected-cost", "parameters": {"shortageCost": 30.5}}, "run": "r1", "reserved": 2, '
    '"block": "cr-0123456789abcdef0", "zones": ["us-west-2a", "us-west-2b"], '
    '"onDemandPrices": {"g5.xlarge": 1.006}, "dataset": "imagenet@2", "preparedBy": "imagenet-data", '
    '"byZone": true, "deadline": 1803920400.0, "onPremises": 4, "onPremisesHosts": {"gpu-1": 8}, '
    '"budget": 120.5, "ownPrices": {"g5.xlarge": 1.25}, '
    '"httpConcurrency": 16, "runs": {"overlap": "wait", "missed": "skip", "deadlineAfter": 21600.0}}'
)

HEALTH = HealthSettings(600, 1200, 25, -1)
HEALTH_TEXT = '{"graceSeconds": 600, "stuckSeconds": 1200, "mostAtOnce": 25, "digest": -1}'

LOG = RequestLogSettings(1.5, 0.001, counts_ended=True)
SCALING = ScalingSettings(
    1, 9, 4, 45.5, (Floor(3, 60, 120, frozenset({0, 6})),), dry_run=True, log=LOG, headroom=0.5
)
SCALING_TEXT = (
    '{"min": 1, "max": 9, "perSlot": 4, "waitSeconds": 45.5, '
    '"floors": [[3, 60, 120, [0, 6]]], "dryRun": true, '
    '"log": {"secondsPerRequest": 1.5, "unitSeconds": 0.001, "countsEnded": true}, "headroom": 0.5}'
)

WANTED = DesiredRelease(RELEASE, 4)
WANTED_TEXT = (
    '{"command":["serve","--fast"],"environment":{"BATCH":"8"},'
    f'"image":"registry.example/ocr@{DIGEST}","perSlot":4}}'
)

ROLLING = RolloutRequest(1800000000, 2, ("i-1", "i-2"))
ROLLING_TEXT = '{"requestedAt":1800000000,"surge":2,"restarting":["i-1","i-2"]}'

REPLACEMENT_REQUESTS = (
    ReplacementRequest("i-1", 1800000000, "xid"),
    ReplacementRequest("i-2", 1800000060, "stuck"),
)
REPLACEMENT_REQUESTS_TEXT = '{"i-1":[1800000000,"xid"],"i-2":[1800000060,"stuck"]}'

WATCHED = (
    WatchedQueue("ocr", "rabbitmq", "ocr", "secret", "https://broker", 5),
    WatchedQueue("a", "sqs", "b", "1"),
)
WATCHED_TEXT = '[["ocr","rabbitmq","ocr","secret","https://broker",5],["a","sqs","b","1","",0]]'

BROKERS = (
    ManagedBroker(
        "mq",
        (BrokerQueue("ocr", 20, 0),),
        (
            BrokerUser("ocr.workers", BrokerRole.WORKERS, "mq-workers", "ocr", ("asr",)),
            BrokerUser("monitor", BrokerRole.MONITOR, "mq-monitor"),
        ),
    ),
)
BROKERS_TEXT = (
    '[["mq",[["ocr",20,0]],[["ocr.workers","workers","mq-workers","ocr",["asr"]],'
    '["monitor","monitor","mq-monitor","",[]]]]]'
)

HEALTH_MEMORY = HealthMemory(
    pending_symptoms={"stuck i-1/0": PendingSymptom(7.0, 1800000000.5)},
    remediations={"i-1": RemediationRecord(Remedy.REPLACE, 1800000000.0, "xid")},
    log=(RemediationLogEntry(1800000000.0, Remedy.RESTART, is_new_instance=True),),
    versions={"aws v1": 1800000000.0},
    incidents={"xid": OpenIncident(1800000000.0, 1800000060.0, "many", is_notified=True)},
    resolved_incidents={"old": OpenIncident(1.5, 2.5, "gone")},
    daily_report_day=20833,
    rollout=Rollout(
        stable=RELEASE,
        candidate=WorkerRelease("", ("serve",)),
        last_step_at=1800000000.0,
        hosts={"i-1": HostProgress("v2", 1800000000.0), "i-2": HostProgress("v2", 0.0, 3, is_verified=True)},
        abandoned="v3",
        rejection_reason="workers fail",
        comparison=Comparison(
            began_at=1800000000.0,
            counters={"new i-1/0": WorkerCounters(1800000000.0, 1800000055.0, 9, 1, 2)},
            window_began_at=1800000060.0,
            window=Paired(9, 1, 90, 0),
            total=Paired(30, 2, 300, 1),
            worse_windows=2,
            crashes=Paired(5, 1, 40, 0),
            is_outage=True,
            outage_seconds=600.0,
        ),
        written_hash="abc",
    ),
)
HEALTH_MEMORY_TEXT = (
    '{"dailyReportDay":20833,"format":1,"incidents":{"xid":[1800000000.0,1800000060.0,"many",1]},'
    '"log":[[1800000000.0,"restart",1]],"pendingSymptoms":{"stuck i-1/0":[7.0,1800000000.5]},'
    '"remediations":{"i-1":["replace",1800000000.0,"xid"]},"resolvedIncidents":{"old":[1.5,2.5,'
    '"gone",0]},"rollout":{"abandoned":"v3","candidate":{"command":["serve"],'
    '"environment":{},"image":""},"comparison":{"beganAt":1800000000.0,'
    '"counters":{"new i-1/0":[1800000000.0,1800000055.0,9,1,2]},"crashes":[5,1,40,0],"isOutage":true,'
    '"outageSeconds":600.0,"total":[30,2,300,1],"window":[9,1,90,0],"windowBeganAt":1800000060.0,'
    '"worseWindows":2},"hosts":{"i-1":["v2",1800000000.0,null,0],"i-2":["v2",0.0,3,1]},'
    '"lastStepAt":1800000000.0,"rejectionReason":"workers fail",'
    '"stable":{"command":["serve","--fast"],"environment":{"BATCH":"8"},'
    f'"image":"registry.example/ocr@{DIGEST}"}},'
    '"writtenHash":"abc"},"versions":{"aws v1":1800000000.0}}'
)

SCALING_MEMORY = ScalingMemory(
    Profile({3: 1.25, 100: 0.5}, 100, 12.5, 4),
    Throughput({"g5.xlarge": (2.5, 600.0)}, 1800000000.0),
    StaffedWait(0.5, 1.5),
    Dispersion(1.5, 2.5),
    ((1800000000.0, 1.5), (1800000060.0, 2.5)),
    ((1800000060.0, 3),),
    WaitingEstimate(7.5, 1800000000.0),
    BatchTimes({"g5.xlarge": LearnedBatches(16, {4: (2.5, 9.0, 20.5)})}),
    1800000060.0,
)
SCALING_MEMORY_TEXT = (
    '{"rates":{"3":1.25,"100":0.5},"bin":[100,12.5,4],"throughput":[{"g5.xlarge":[2.5,600.0]},1800000000.0],'
    '"staffed":[0.5,1.5],"dispersion":[1.5,2.5],"arrivals":[[1800000000.0,1.5],[1800000060.0,2.5]],'
    '"wanted":[[1800000060.0,3]],"waitingEstimate":[7.5,1800000000.0],'
    '"batchTimes":[{"g5.xlarge":{"maxSize":16,"rows":{"4":[2.5,9.0,20.5]}}}],'
    '"raisedAt":1800000060.0,"completed":[]}'
)

QUEUE_HISTORY = QueueHistory(1800000000.0, 70, 60, 12.5, ((1799999940.0, 60), (1800000000.0, 70)))
QUEUE_HISTORY_TEXT = "[1800000000.0,70,60,12.5,[[1799999940.0,60],[1800000000.0,70]]]"

MEMORY = Memory(
    termination_deadlines={"i-1": 1800000120.0},
    at_risk={"i-2": 1800000000.0},
    retiring={"i-3": 1800003600.0},
    termination_requests={"i-4": 1800000000.0},
    replacement_times={"i-4": 1800000000.0},
    boots={PurchaseOption.SPOT: (180.0, 200.5), PurchaseOption.ON_DEMAND: (60.0,)},
    booted=frozenset({"i-2", "i-1"}),
    fallback_leads=(60.0, 120.0),
    fallback_requested_at=1800000000.0,
    not_reporting={"i-5": 1800000000.0},
    requested_capacity={GroupRole.FALLBACK: (2, 1800000000.0)},
    active_alarms=frozenset({"limit"}),
    history=History(
        {"g5.xlarge@us-west-2a": PoolRecord(1800000000.0, 6000.0, 1.5, 0.25, 1799990000.0)},
        {"i-1": "g5.xlarge@us-west-2a"},
        True,
        1800000000.0,
        2.5,
        0.5,
        1.5,
        600.0,
    ),
    spot_prices={"g5.xlarge@us-west-2a": 0.35},
    priced_at=1800000000.0,
    volume_zone="us-west-2a",
    job=JobRecord(
        run="r1",
        step=7,
        steps=100,
        reported_at=1800000000.0,
        worker="i-1",
        rate=0.5,
        best_rate=0.75,
        rates=SampleStatistics(2, 0.5, 0.75, 1.25),
        rate_sampled_at=1799990000.0,
        max_lost_seconds=30.5,
        restart_overheads=SampleStatistics(1, 0.0, 0.0, 0.0),
        on_demand_requested_at=1800000000.0,
        on_demand_instance="i-6",
    ),
    on_premises_offset=OnPremisesOffset(2, 3, 1800000000.0),
    bill=Bill("r1", 12.5, 1799990000.0, {"i-1": (1800000000.0, 0.45)}),
    without_spot_since=1800000000.0,
)
MEMORY_TEXT = (
    '{"active_alarms":["limit"],"at_risk":{"i-2":1800000000.0},"bill":{"closed":12.5,'
    '"closed_at":1799990000.0,"run":"r1","running":{"i-1":[1800000000.0,0.45]}},"booted":["i-1","i-2"],'
    '"boots":{"on-demand":[60.0],"spot":[180.0,200.5]},"fallback_leads":[60.0,120.0],'
    '"fallback_requested_at":1800000000.0,"format":1,"history":{"capacity_unavailable":true,'
    '"correlated_losses":1.5,"correlated_seconds":600.0,"losses":2.5,'
    '"pool_by_instance":{"i-1":"g5.xlarge@us-west-2a"},'
    '"pools":{"g5.xlarge@us-west-2a":{"expected":0.25,"losses":1.5,"lost_at":1799990000.0,'
    '"since":1800000000.0,"start_age":6000.0}},"unannounced":0.5,"waiting_since":1800000000.0},'
    '"job":{"best_rate":0.75,"launch_delays":{},"max_lost_seconds":30.5,"on_demand_instance":"i-6",'
    '"on_demand_requested_at":1800000000.0,"rate":0.5,"rate_sampled_at":1799990000.0,'
    '"rates":{"count":2,"maximum":0.75,"minimum":0.5,"total":1.25},"reported_at":1800000000.0,'
    '"restart_overheads":{"count":1,"maximum":0.0,"minimum":0.0,"total":0.0},"run":"r1","step":7,'
    '"steps":100,"worker":"i-1"},"not_reporting":{"i-5":1800000000.0},"on_premises_offset":[2,3,'
    '1800000000.0],"priced_at":1800000000.0,"replacement_times":{"i-4":1800000000.0},'
    '"requested_capacity":{"fallback":[2,1800000000.0]},"retiring":{"i-3":1800003600.0},'
    '"spot_prices":{"g5.xlarge@us-west-2a":0.35},"termination_deadlines":{"i-1":1800000120.0},'
    '"termination_requests":{"i-4":1800000000.0},"volume_zone":"us-west-2a",'
    '"without_spot_since":1800000000.0}'
)

TENANTS = (
    Tenant(
        name="vision",
        uid=2001,
        cpus=8,
        memory_gib=64,
        image=f"registry.example/vision@{DIGEST}",
        cpu_mode="pinned",
        gpu_ids=(0, 2),
        host_port=8000,
        container_port=80,
        data_gib=50,
        command=("serve",),
        environment={"A": "b"},
    ),
    Tenant("small", 2002, 2, 8, f"registry.example/small@{DIGEST}", mig="1g.5gb"),
)
TENANTS_TEXT = (
    '{"tenants":[{"command":["serve"],"containerPort":80,"cpuMode":"pinned","cpus":8,"dataGib":50,'
    '"environment":{"A":"b"},"gpuIds":[0,2],"hostPort":8000,'
    f'"image":"registry.example/vision@{DIGEST}","memoryGib":64,"name":"vision","uid":2001}},'
    f'{{"cpus":2,"image":"registry.example/small@{DIGEST}","memoryGib":8,"mig":"1g.5gb","name":"small",'
    '"uid":2002}]}'
)
SLICE = Slice((0, 1), 50, 2**30, pinned=True, gpus=(1,), mig=MigInstance(1, "1g.5gb", 4), cpu_limit=2)
SLICE_TEXT = (
    '{"cpuLimit":2,"cpus":[0,1],"gpus":[1],"memoryBytes":1073741824,"mig":{"gpu":1,"profile":"1g.5gb","start":4},'
    '"pinned":true,"weight":50}'
)

WORKER = Worker(
    "ocr#arn:aws:ec2:us-west-2:123456789012:instance/i-1",
    "i-1",
    3,
    1800000000.0,
    1800000010.0,
    "draining",
    deadline=1800000120.5,
    progress=Progress(7, 100, 1800000005.5, 1800000001.0, 0.5, 0.75),
    report=WorkerReport(
        *("v1", "GPU-1", 1800000004.5, 12, 1, 0.5, 0.25, 93.5, 31, 2, (BatchRow(4, 3, 9, 2.5, 1),), 16, 0.75),
        *("low on memory", 0.125),
    ),
    restart_requested_at=1800000003.0,
    tenant_waits=(TenantWait("vision", "waits for port 8001 of 'speech'"),),
    agent_version="0.1.0",
)
WORKER_ITEM = {
    **texts(group="ocr#arn:aws:ec2:us-west-2:123456789012:instance/i-1", worker="i-1/3", instance="i-1"),
    **numbers(since="1800000000", heartbeat="1800000010", expires="1800003610", deadline="1800000120.5"),
    **texts(state="draining", agentVersion="0.1.0"),
    "progress": {
        "M": numbers(step="7", steps="100", at="1800000005.5", began="1800000001", rate="0.5", best="0.75")
    },
    "pulse": {
        "M": {
            **texts(version="v1", gpu="GPU-1", stopped="low on memory"),
            **numbers(at="1800000004.5", done="12", failed="1", rate="0.5", busy="0.25", gpuUse="93.5"),
            **numbers(xid="31", starts="2", batchSize="16", refused="0.75", failedRate="0.125"),
            "batches": {"L": [{"L": [{"N": "4"}, {"N": "3"}, {"N": "9"}, {"N": "2.5"}, {"N": "1"}]}]},
        }
    },
    **numbers(restart="1800000003"),
    "waits": {"L": [{"L": [{"S": "vision"}, {"S": "waits for port 8001 of 'speech'"}]}]},
}
BACKLOG = QueueState(1800000000.5, 12, 3, 45.5, 1.5, 0.5, 4)
BACKLOG_ITEM = {
    **texts(group="ocr@queue", worker="queue"),
    **numbers(at="1800000000.5", ready="12", taken="3", oldest="45.5", arriving="1.5", leaving="0.5"),
    **numbers(readers="4", expires="1800604800"),
}
RELEASES = WorkerReleases(
    RELEASE, WorkerRelease("", ("serve",)), frozenset({"i-2", "i-1"}), is_candidate_default=True
)
RELEASES_ITEM = {
    **texts(group="ocr@release", worker="release"),
    "releases": {
        "S": '{"mostly":true,"on":["i-1","i-2"],"stable":{"command":["serve","--fast"],'
        f'"environment":{{"BATCH":"8"}},"image":"registry.example/ocr@{DIGEST}"}},'
        '"trial":{"command":["serve"],"environment":{},"image":""}}'
    },
}
ATTEMPT = JobAttempt(
    token=107,
    revision="a" * 40,
    instance="i-1",
    instance_type="g5.xlarge",
    zone="us-west-2a",
    purchase_option="spot",
    group_role="primary",
    launched=1800000000.0,
    began=1800000060.5,
    last_seen_at=1800003600.0,
    started=1800000070.0,
    restarted=1800000080.0,
    starts=2,
    resumed=1799990000.0,
    checkpoint=1800003500.0,
    lost=12.5,
    notice_at=1800003480.0,
    cause="spot",
    stopped=1800003590.0,
    ended=1800003595.0,
    end="told",
    booted=1800000030.0,
    first_step=100,
    step=900,
    repeated=20,
    saving=31.5,
    exporting=1800003580.0,
)
ATTEMPT_ITEM = {
    **texts(job="resnet#07", revision="a" * 40, instance="i-1", instance_type="g5.xlarge", zone="us-west-2a"),
    **texts(market="spot", side="primary", cause="spot", end="told"),
    **numbers(token="107", launched="1800000000", began="1800000060.5", seen="1800003600"),
    **numbers(started="1800000070", restarted="1800000080", starts="2", resumed="1799990000"),
    **numbers(checkpoint="1800003500", lost="12.5", told="1800003480", stopped="1800003590"),
    **numbers(ended="1800003595", booted="1800000030", first_step="100", step="900", repeated="20"),
    **numbers(saving="31.5", exporting="1800003580"),
}
