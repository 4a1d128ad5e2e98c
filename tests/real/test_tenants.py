"""Three tenants on one host, in real containers: what they reach, what they lend, who notices whose end."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Final

import boto3
import pytest

from contracts.agent import config
from tests import models
from tests.real import containers as real
from tests.real import floods, hostile, hostile_calls, shells, tunnels
from tests.real.breaches import ALONE, TRIED, breaches, network_breaches, plant, secret, unenforced
from tests.real.lending import lending
from tests.real.registry import PASSWORD, USER, add_image, registry
from tests.real.tenants import (
    ADDRESS,
    OUTSIDE_BYTES,
    SERVICE,
    THREE,
    SharedHost,
    outside,
    shape,
    shared_host,
    tenant,
    until,
)
from userdata.agent.machine import files
from userdata.agent.tenants import codec
from userdata.agent.tenants.host import container, firewall, meter
from userdata.agent.tenants.host.container import name_of
from userdata.agent.tenants.host.listing import TenantListReader
from userdata.agent.tenants.host.steps import DesiredTenant
from userdata.agent.tenants.host.tenant_state import POLL_INTERVAL_SECONDS
from userdata.agent.tenants.model import Tenant
from userdata.agent.tenants.plan import plan
from userdata.agent.tenants.throughput import ASSUMED, bounds_of
from userdata.agent.work import notice
from userdata.agent.work.notice import Notice

LIMIT_SECONDS = 30.0
_IMAGE = f"registry.example/shell@sha256:{'0' * 64}"
"""A list names images by their digests; the image of this machine has none."""
_STACK: Final = config.SharedHost("agents", "jobs")
_AS_AN_INSTANCE: Final = (_STACK.list_interval_seconds, POLL_INTERVAL_SECONDS)


def list_changes(host: SharedHost, changes: int, *, quick: bool = False) -> list[float]:
    """Return the seconds from each changed list to the running container."""
    others = host.tenants
    reads = (host.list_interval_seconds, host.poll_interval_seconds) if quick else _AS_AN_INSTANCE
    with _in_s3(host, *reads) as put:
        new = tenant("dee", 2004)
        put((*others, new))
        taken = [until(lambda: host.answers(ADDRESS, 8004), "dee serves")]
        for number in range(1, changes):
            put((*others, replace(new, environment={"NUMBER": str(number)})))
            taken.append(until(lambda number=number: _has(number), f"change {number} runs"))  # type: ignore[misc]
        put(others)
        until(lambda: "dee" not in host.inspected() and "dee" not in host.disks.here, "dee is gone")
    # A change waits for a read of the list, and for a look at the containers before and after each work.
    later = sum(
        times * (most - read) for times, most, read in zip((1, 3), _AS_AN_INSTANCE, reads, strict=True)
    )
    return [seconds + later for seconds in taken]


def _has(number: int) -> bool:
    argv = ["docker", "exec", name_of("dee"), "sh", "-c", f'test "$NUMBER" = {number}']
    return subprocess.run(argv, capture_output=True).returncode == 0


@contextlib.contextmanager
def _in_s3(
    host: SharedHost, list_seconds: float, poll_seconds: float
) -> Iterator[Callable[[tuple[Tenant, ...]], None]]:
    """Let a host read its list from a bucket, and look at its containers; yield how to replace the list."""
    before = host.fetch, host.list_interval_seconds, host.poll_interval_seconds
    with models.moto():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket=_STACK.bucket)

        def put(tenants: tuple[Tenant, ...]) -> None:
            text = codec.encode([replace(one, image=_IMAGE) for one in tenants])
            client.put_object(Bucket=_STACK.bucket, Key=codec.key_of("lab"), Body=text.encode())

        reader = TenantListReader(client, _STACK.bucket, "lab", host.place.run / "list.json")

        def fetched() -> tuple[Tenant, ...] | None:
            tenants = reader.fetch()
            return tenants and tuple(replace(one, image=real.IMAGE) for one in tenants)

        put(host.tenants)
        host.stop()
        host.fetch, host.list_interval_seconds, host.poll_interval_seconds = (
            fetched,
            list_seconds,
            poll_seconds,
        )
        host.begin()
        try:
            yield put
        finally:
            host.stop()
            host.fetch, host.list_interval_seconds, host.poll_interval_seconds = before
            host.begin()


@pytest.fixture(scope="module")
def host() -> Iterator[SharedHost]:
    try:
        with real.folder() as place, shared_host(place) as made:
            plant(made)
            yield made
    except real.LackingError as error:
        pytest.skip(str(error))


def test_no_tenant_reads_reaches_sees_or_outgrows_what_is_not_its_own(host: SharedHost) -> None:
    # All of it is there to be reached: the host itself does.
    for address, port in ((ADDRESS, 8001), ("127.0.0.1", 8002), (ADDRESS, SERVICE), (real.METADATA, 80)):
        assert host.answers(address, port), (address, port)
    assert breaches(host) == []
    assert not host.answers(real.METADATA, 80, user=2001)
    assert host.answers(real.METADATA, 80, user=2999)
    assert len(unenforced()) == 1


@pytest.mark.soak
def test_no_hostile_image_or_program_gets_its_way(host: SharedHost) -> None:
    before = host.pids()
    assert hostile.succeeded(host) == []
    assert host.pids() == before


@pytest.mark.soak
def test_what_programs_try_is_possible_where_nothing_prevents_it(host: SharedHost) -> None:
    said: set[str] = set()
    for more in (["NET_ADMIN", "--cap-add", "SYSLOG"], ["SYS_ADMIN", "--security-opt", "seccomp=unconfined"]):
        free = ["docker", "run", "--rm", "--shm-size", "1g", "--cap-add", *more, real.IMAGE, "sh", "-c"]
        done = subprocess.run([*free, hostile.TRIED], capture_output=True, text=True)
        said |= {*done.stdout.splitlines()}
    assert said == set(hostile.PROGRAMS)


@pytest.mark.soak
def test_system_calls_are_possible_where_nothing_prevents_them(host: SharedHost) -> None:
    real.take_in(real.python_image([]), real.PYTHON)
    script = Path(hostile_calls.__file__).read_text("utf-8")
    # The machine of a test may itself be a container, without this capability.
    free = ["--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE", "--security-opt", "seccomp=unconfined"]
    said: set[str] = set()
    for networks in (
        ["--pid", "host", "--network", "host"],
        ["--network", f"container:{container.name_of('ada')}"],
    ):
        argv = ["docker", "run", "--rm", *free, *networks, real.PYTHON, str(real.INTERPRETER), "-c", script]
        done = subprocess.run([*argv, str(host.pids()["ada"])], capture_output=True, text=True, check=True)
        said |= {*done.stdout.splitlines()}
    assert said == set(hostile_calls.TRIED)


@pytest.mark.soak
def test_ipv6_and_datagrams_lead_to_others_without_the_firewall(host: SharedHost) -> None:
    host.host.run(["nft", "delete", "table", "inet", firewall.TABLE], 60)
    try:
        found = tunnels.reached(host)
    finally:
        firewall.apply_rules(host.host, {one.uid: 10**10 for one in THREE})
    for name, other in permutations(("ada", "bo", "cy"), 2):
        assert f"{name} tunnels to {other}" in found
        assert f"{name} tunnels to the host" in found
    of_ada = [line for line in found if line.startswith("ada reaches")]
    assert len(of_ada) == 5  # the bridge by two addresses, the metadata service, two tenants
    assert found[-1].startswith("a process of ada's user on the host reaches")


def test_an_image_of_a_private_registry_runs_with_its_secret_and_not_without(host: SharedHost) -> None:
    place = host.place.run.parent
    images = place / "private"
    images.mkdir()
    image = add_image(images, [(real.image(place / "of-image"), 1)])
    dee = tenant("dee", 2004, image=image, registry_secret="lab/registry", secret="lab/dee")
    host.secrets["lab/dee"] = '{"API_KEY": "k3y of dee"}'
    host.secrets["lab/registry"] = json.dumps({"username": USER, "password": "wrong"})
    try:
        with registry(host.inside, images):
            host.tenants = (*THREE, dee)
            until(lambda: "failed" in host.heartbeats.waits.get("dee", ""), "dee may not pull")
            assert "unauthorized" in host.heartbeats.waits["dee"].lower()
            host.secrets["lab/registry"] = json.dumps({"username": USER, "password": PASSWORD})
            until(lambda: "dee" in host.pids(), "dee runs")
        assert host.within("dee", "echo $API_KEY").stdout == "k3y of dee\n"
        assert host.within("ada", "echo $API_KEY").stdout == "\n"
        assert not [*host.place.run.glob("registry-*")]
        said = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
        assert "k3y of dee" not in said
    finally:
        host.tenants = THREE
        until(lambda: "dee" not in host.inspected(), "dee has gone")


def test_tenants_that_exchange_ports_and_users_serve_again(host: SharedHost) -> None:
    ada, bo, cy = THREE
    host.tenants = (
        replace(ada, host_port=bo.host_port, uid=bo.uid),
        replace(bo, host_port=ada.host_port, uid=ada.uid),
        cy,
    )
    try:
        until(lambda: host.users() == {"ada": 2002, "bo": 2001, "cy": 2003}, "users are exchanged")
        until(lambda: host.heartbeats.waits == {}, "none waits")
        assert host.within("ada", "cat /data/secret").stdout == f"{secret('ada')}\n"
        assert host.within("bo", "cat /data/secret").stdout == f"{secret('bo')}\n"
        assert breaches(host) == []
    finally:
        host.tenants = THREE
        until(lambda: host.users() == {"ada": 2001, "bo": 2002, "cy": 2003}, "users are as before")
        until(lambda: host.heartbeats.waits == {}, "none waits")


def test_what_is_tried_is_possible_where_nothing_prevents_it(host: SharedHost) -> None:
    run, socket = host.place.run, host.place.run.parent / "docker.sock"
    free = ["docker", "run", "--rm", "--tmpfs", "/data", "--device", "/dev/loop-control", "--volume"]
    free += [f"{run}:/run/gpu-spot", "--volume", f"{socket}:/run/docker.sock", real.IMAGE, "sh", "-c"]
    said = subprocess.run([*free, TRIED], capture_output=True, text=True).stdout
    assert set(said.splitlines()) == set(ALONE)


def test_the_firewall_isolates_tenants(host: SharedHost) -> None:
    host.host.run(["nft", "delete", "table", "inet", firewall.TABLE], 60)
    try:
        found = network_breaches(host)
    finally:
        firewall.apply_rules(host.host, {one.uid: 10**10 for one in THREE})
    assert f"ada reaches {real.METADATA}:80" in found
    assert f"bo reaches {ADDRESS}:{SERVICE}" in found
    assert network_breaches(host) == []


def test_idle_cpus_are_lent_and_come_back_when_their_owner_wakes(host: SharedHost) -> None:
    with lending(host) as tenants:
        tenants.wake("bo")
        lent = tenants.lent("bo", 3.0)
        # A second on a quiet machine; here the host's processes may wait for other work.
        assert tenants.give_back_seconds("ada", "bo") < 5.0
    assert lent.fraction >= 0.9
    assert lent.cpus > 1.2  # one is its own


@pytest.mark.soak  # shares of a machine on which other tests run, too
@pytest.mark.parametrize("name", floods.FLOODS)
def test_a_neighbour_has_its_part_whatever_a_tenant_does(host: SharedHost, name: str) -> None:
    [share] = floods.neighbour_shares(host, [name], 8.0).values()
    assert share >= 0.9


@pytest.mark.soak  # shares of a machine on which other tests run, too
@pytest.mark.parametrize("name", floods.FLOODS)
def test_a_tenants_busy_processes_give_borrowed_cpus_back(host: SharedHost, name: str) -> None:
    [seconds] = floods.give_back_seconds(host, [name]).values()
    assert seconds < 2.0  # as above: half a second on a quiet machine


def test_a_user_has_a_shell_in_its_container_and_none_of_the_host(host: SharedHost) -> None:
    with shells.session("ada") as user:
        user.type("id -u; pwd; tty > /dev/null && echo on a terminal; cat /data/secret; exit\n")
        assert user.shows(secret("ada")), user.output
        assert user.process.wait(20) == 0
    assert "2001" in user.output
    with shells.session("nobody") as user:
        assert user.shows("No such container"), user.output
        assert user.process.wait(20) != 0
    script = host.place.volume_path("ada") / "data" / "tried.sh"
    script.write_text(f"{TRIED}\nrm -f /tmp/big /data/big; echo tri''ed\n")
    with shells.session("ada") as user:
        user.type("sh /data/tried.sh; exit\n")
        assert user.shows("tried", 60.0), user.output
    script.unlink()
    assert not [what for what in ALONE if what in user.output], user.output


def test_no_key_leads_from_a_shell_to_the_host(host: SharedHost) -> None:
    assert shells.reached(host, "ada") == []


def test_traffic_and_connections_of_a_tenant_are_bounded(
    host: SharedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    rate = 2_000_000
    with outside(host) as address:
        with monkeypatch.context() as fewer:
            fewer.setattr(firewall, "MAX_CONNECTIONS", 5)
            firewall.apply_rules(host.host, {one.uid: 10**10 for one in THREE})
        script = f"for n in {{1..9}}; do exec {{f}}<>/dev/tcp/{address}/80; echo; done"
        opened = f"timeout 2 bash -c '{script}'"
        assert [host.within(name, opened).stdout.count("\n") for name in ("ada", "bo")] == [5, 5]
        firewall.apply_rules(host.host, {one.uid: 10**10 for one in THREE})
        fast = _download_seconds(host, "ada", address)
        firewall.apply_rules(host.host, {2001: rate, 2002: 10**10, 2003: 10**10})
        try:
            slow = _download_seconds(host, "ada", address)
            neighbour = _download_seconds(host, "bo", address)
        finally:
            firewall.apply_rules(host.host, {one.uid: 10**10 for one in THREE})
    bounded = OUTSIDE_BYTES / rate - 1  # a second's worth passes at once
    assert slow >= 0.9 * bounded
    assert max(fast, neighbour) < 0.5 * bounded


def test_a_disk_of_a_tenant_is_bounded(host: SharedHost) -> None:
    """On cgroup v1 of this kernel only direct reads and writes count."""
    found = host.inspected()["ada"]["HostConfig"]
    for kind in ("BlkioDeviceReadBps", "BlkioDeviceWriteBps"):
        assert [one["Path"].startswith("/dev/loop") for one in found[kind][:1]] == [True]


def test_a_capped_tenant_never_uses_more_than_its_cpus(host: SharedHost) -> None:
    before = host.pids()
    host.tenants = (replace(THREE[0], cpu_mode="capped"), *THREE[1:])
    until(lambda: host.inspected()["ada"]["HostConfig"]["CpuQuota"] == 100_000, "ada is capped")
    with lending(host) as tenants:
        tenants.wake("ada")
        used = tenants.lent("ada", 8.0)
    counters = meter.read(before["ada"])
    host.tenants = THREE
    until(lambda: host.inspected()["ada"]["HostConfig"]["CpuQuota"] == -1, "ada is not capped")
    assert used.cpus <= 1.03
    # Where other work leaves no CPU idle it may get less.
    assert used.cpus >= 0.9 or used.fraction > 0.95
    assert counters is not None
    assert counters.throttled > 0
    assert host.pids() == before


def test_tmp_is_on_the_volume_and_empty_at_each_start(host: SharedHost) -> None:
    planted = """
        echo old > /tmp/file; mkdir -p /tmp/deep/er; ln -s /data /tmp/data; ln -s /data/secret /tmp/secret
        ln -s /etc /tmp/etc; mkdir -m 0 /tmp/closed; echo kept > /tmp/.hidden
    """
    assert host.within("ada", planted).stderr == ""
    before = host.pids()["ada"]
    host.docker("kill", container.name_of("ada"))
    until(lambda: host.pids().get("ada", before) != before, "ada is back")
    assert host.within("ada", "ls -A /tmp").stdout == ""
    assert host.within("ada", "cat /data/secret").stdout == f"{secret('ada')}\n"
    assert host.within("ada", "stat -c %a:%u /tmp").stdout == "1777:0\n"
    assert host.within("ada", "stat -c %d /tmp /data | uniq | wc -l").stdout.strip() == "1"
    # Compilers of kernels load libraries from there.
    assert host.within("ada", "cp /bin/busybox /tmp/id; /tmp/id -u").stdout == "2001\n"
    assert host.place.volume_path("ada").stat().st_mode & 0o777 == 0o700


def test_one_that_is_killed_or_replaced_leaves_the_others_as_they_are(host: SharedHost) -> None:
    before = host.pids()
    host.docker("kill", container.name_of("ada"))
    until(lambda: host.pids().get("ada", before["ada"]) != before["ada"], "ada is back")
    host.tenants = (replace(THREE[0], environment={"NEW": "1"}), *THREE[1:])
    changed = ["docker", "exec", container.name_of("ada"), "sh", "-c", 'test "$NEW" = 1']
    until(lambda: subprocess.run(changed, capture_output=True).returncode == 0, "ada is replaced")
    assert host.within("ada", "cat /data/secret").stdout == "secret-of-ada\n"
    after = host.pids()
    assert {name: after[name] for name in ("bo", "cy")} == {name: before[name] for name in ("bo", "cy")}
    assert network_breaches(host) == []


def test_a_restarted_supervisor_leaves_containers_running(host: SharedHost) -> None:
    before = host.pids()
    host.stop()
    assert host.pids() == before
    host.heartbeats.said.clear()
    host.begin()
    until(lambda: host.heartbeats.said[-1:] == ["ready"], "the landlord is back")
    assert host.pids() == before


def test_other_cpus_are_given_to_a_container_that_runs(host: SharedHost) -> None:
    before, shares = host.pids(), host.inspected()["cy"]["HostConfig"]["CpuShares"]
    host.tenants = (*host.tenants[:2], replace(THREE[2], cpus=4))
    until(lambda: host.inspected()["cy"]["HostConfig"]["CpuShares"] == 4 * shares, "cy has more CPUs")
    assert host.pids() == before


def test_a_new_tenant_with_a_cached_image_serves_within_ten_seconds(host: SharedHost) -> None:
    before = host.pids()
    started_at = time.monotonic()
    host.tenants = (*host.tenants, tenant("dee", 2004))
    until(lambda: host.answers(ADDRESS, 8004), "dee serves")
    taken = time.monotonic() - started_at
    host.tenants = host.tenants[:3]
    until(lambda: "dee" not in host.inspected() and "dee" not in host.disks.here, "dee is gone")
    assert host.pids() == before
    assert taken < 10.0


def test_a_changed_list_runs_within_thirty_seconds(host: SharedHost) -> None:
    before = host.pids()
    taken = list_changes(host, 3, quick=True)
    assert max(taken) <= LIMIT_SECONDS, taken
    assert host.pids() == before


def test_a_notice_reaches_all_and_each_ends_in_its_time(host: SharedHost) -> None:
    now = time.time()
    notice.write(host.place.run, Notice("spot", "terminate", "soon", now + 90, now + 10, now))
    names = sorted(host.pids())
    command = "cat /run/gpu-spot/notice.json"
    until(lambda: all(host.within(name, command).returncode == 0 for name in names), "all hear of it")
    assert {json.loads(host.within(name, command).stdout)["announced"] for name in names} == {"soon"}
    until(lambda: host.heartbeats.said[-1:] == ["left"], "all have ended")
    assert host.pids() == {}
    for name in ("ada", "bo", "cy"):
        host.disks.attach(name, 0)
        assert (host.place.volume_path(name) / "data" / "told").read_text() == "told\n"
        assert (host.place.volume_path(name) / "data" / "secret").read_text() == f"secret-of-{name}\n"


def test_a_tenant_sees_its_own_gpus_and_one_without_sees_none() -> None:
    try:
        with real.folder() as place, real.podman(place):
            spot = container.TenantPaths(ADDRESS, place / "run", place / "homes", real.CDI.parent)
            for name, uid, gpus in (("ada", 2001, ["0"]), ("bo", 2002, ["1"]), ("cy", 2003, [])):
                visible = ",".join(gpus) or "void"
                assert _seen(spot, name, uid, gpus) == [*(f"nvidia{gpu}" for gpu in gpus), visible]
    except real.LackingError as error:
        pytest.skip(str(error))


def _download_seconds(host: SharedHost, name: str, address: str) -> float:
    started_at = time.monotonic()
    done = host.within(name, f"busybox wget -q -O /dev/null http://{address}/large")
    assert done.returncode == 0, done.stderr
    return time.monotonic() - started_at


def _seen(place: container.TenantPaths, name: str, uid: int, gpus: list[str]) -> list[str]:
    """Return the devices in a tenant's container, and the GPUs that its first process reads."""
    script = "ls /dev | grep ^nvidia; echo $NVIDIA_VISIBLE_DEVICES"
    one = tenant(name, uid, command=("sh", "-c", script), host_port=None, container_port=None)
    one = replace(one, environment={"NVIDIA_VISIBLE_DEVICES": "all"})
    for folder in (
        place.volume_path(name) / "data",
        place.volume_path(name) / "log",
        place.temporary_directory(name),
        place.notice_directory(name),
    ):
        folder.mkdir(parents=True)
    place.environment_file(name).parent.mkdir(exist_ok=True)
    place.environment_file(name).write_text(
        "".join(f"{k}={v}\n" for k, v in container.environment(one, gpus, {}).items())
    )
    files.write_json(place.cdi_file(name), container.cdi_specification(name, gpus))
    part = plan(shape(), [one]).slices[name]
    desired = DesiredTenant(one, part, "spec", 100, -1, (), bounds_of(1, 2, ASSUMED))
    argv = container.run_command(desired, gpus, place, container.TenantDisks("", ""))
    for option in (
        "--runtime",
        "--log-driver",
        "--log-opt",
        "--log-opt",
        "--ulimit",
        "--ulimit",
        "--network",
    ):
        at = argv.index(option)
        del argv[at : at + 2]
    argv = [part for part in argv if part not in ("--detach", "core=0", "--ulimit")]
    argv[2:2] = ["--network", "none"]
    try:
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()
    finally:
        place.cdi_file(name).unlink()
