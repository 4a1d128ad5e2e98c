"""Images: what they may declare, what they may weigh; least versions of what runs them."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.configs import FakeClock
from tests.tenants.hosts import tenant
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import SystemHost
from userdata.agent.tenants.images import versions
from userdata.agent.tenants.images.secret_values import TenantSecrets
from userdata.agent.tenants.images.store import RESERVED_BYTES, ImageStore, checked_volumes
from userdata.agent.tenants.images.versions import COMPONENTS, parse_version
from userdata.agent.work.images import GRACE_SECONDS, PulledImages

GIB = 2**30
IMAGE: Final = f"123456789012.dkr.ecr.us-west-2.amazonaws.com/lab/notebook@sha256:{'0' * 64}"
ADA: Final = tenant("ada", image=IMAGE)
PRIVATE: Final = replace(ADA, image=f"registry.example.org:5000/lab/notebook@sha256:{'0' * 64}")


def test_volumes_outside_of_what_is_mounted_need_a_directory() -> None:
    assert checked_volumes(["/var/lib/db/", "/data", "/tmp", "/log/", "/data/db", "/.cache"]) == (
        "/.cache",
        "/data/db",
        "/var/lib/db",
    )
    assert checked_volumes([]) == ()


@pytest.mark.parametrize(
    "path",
    [
        *("/", "", "relative", "/a/../etc", "/a//b", "/a:b", "/a,b", "/a b", "/a/./b", "/..", "/a\n/b"),
        *(
            "/proc",
            "/proc/sys",
            "/dev",
            "/dev/shm",
            "/sys/fs/cgroup",
            "/run",
            "/run/gpu-spot",
            "/run/gpu-spot/x",
        ),
    ],
)
def test_other_volumes_are_refused(path: str) -> None:
    with pytest.raises(AgentError, match=r"the image has the volume .*; use a plain absolute path outside"):
        checked_volumes(["/cache", path])


def test_many_volumes_and_a_working_directory_of_the_kernel_are_refused() -> None:
    assert len(checked_volumes([f"/v{n}" for n in range(16)])) == 16
    with pytest.raises(AgentError, match="the image must have at most 16 volumes, not 17"):
        checked_volumes([f"/v{n}" for n in range(17)])
    for path in ("/proc/self/fd/8", "//proc/self/fd/9", "proc/1/root", "/a/../proc/self"):
        with pytest.raises(AgentError, match="the image has the working directory"):
            checked_volumes([], path)
    assert checked_volumes([], "/proceedings") == ()


class Registry(SystemHost):
    """Docker with one image in its registry, of so many GiB, which unpacks to ``unpacked``."""

    def __init__(self, gib: float, unpacked: float, manifest: Any = None) -> None:
        super().__init__()
        self.layers = [{"size": int(gib * GIB / 2)}] * 2
        self.unpacked, self.manifest = unpacked, manifest
        self.free = 60.0
        self.secrets: dict[str, str] = {}
        self.run_directory = Path("/nowhere")
        self.stdin: list[str] = []
        self.pulled = False
        self.clock = FakeClock()
        self.record = Path(tempfile.mkdtemp()) / "images.json"
        self.ran: list[list[str]] = []

    def run(self, argv: Sequence[str], timeout: float = 60, stdin: str = "", environment: Any = None) -> str:
        self.ran.append(list(argv))
        self.stdin += [stdin] if stdin else []
        match [word for word in argv if word != "--config" and not word.startswith(str(self.run_directory))]:
            case ["docker", "image", "inspect", *_]:
                if not self.pulled:
                    raise AgentError("docker: exit 1: No such image")
                return '{"Volumes": {"/cache": {}}, "WorkingDir": "/app"}'
            case ["docker", "info", *_]:
                return "/var/lib/docker\n"
            case ["docker", "manifest", "inspect", image]:
                if self.manifest is not None and image == IMAGE:
                    return json.dumps(self.manifest)
                return json.dumps({"config": {"size": 1}, "layers": self.layers})
            case ["docker", "pull", *_]:
                self.pulled, self.free = True, self.free - self.unpacked
            case ["docker", "image", "rm", _]:
                self.pulled, self.free = False, self.free + self.unpacked
        return ""

    def store(self) -> ImageStore:
        secrets = TenantSecrets(
            self.secrets.__getitem__, lambda region: f"secret of {region}", self.run_directory
        )
        return ImageStore(
            self, secrets, PulledImages(self, self.clock, self.record), lambda directory: int(self.free * GIB)
        )


def test_an_image_is_pulled_once_and_its_volumes_are_known() -> None:
    registry = Registry(10.0, 25.0)
    store = registry.store()
    assert store.prepare(ADA) == store.prepare(ADA) == ("/cache",)
    assert [argv[1] for argv in registry.ran if argv[1] in ("pull", "login")] == ["login", "pull"]


def test_an_image_too_large_by_its_registry_is_not_pulled() -> None:
    registry = Registry(13.0, 1.0)
    with pytest.raises(
        AgentError, match=r"of 13\.0 GiB, .*: 60\.0 GiB are free, and 10\.0 GiB of them must stay free"
    ):
        registry.store().prepare(ADA)
    assert not registry.pulled


def test_one_of_several_platforms_is_measured() -> None:
    def entry(system: str, architecture: str, digest: str) -> dict[str, Any]:
        return {"digest": digest, "platform": {"os": system, "architecture": architecture}}

    index = {"manifests": [entry("linux", one, f"sha256:{one}") for one in ("s390x", "amd64", "arm64")]}
    registry = Registry(13.0, 1.0, index)
    with pytest.raises(AgentError, match=r"image of 13\.0 GiB"):
        registry.store().prepare(ADA)
    asked = [argv[-1] for argv in registry.ran if argv[1] == "manifest"]
    assert len(asked) == 2
    assert asked[1].startswith(f"{IMAGE.partition('@')[0]}@sha256:a")


def test_where_the_registry_does_not_say_it_the_disk_decides() -> None:
    registry = Registry(1.0, 51.0, {"unknown": 1})
    with pytest.raises(AgentError, match=r"does not fit on the disk: 9\.0 GiB are free"):
        registry.store().prepare(ADA)
    assert not registry.pulled
    assert registry.free * GIB > RESERVED_BYTES
    registry = Registry(1.0, 20.0, {"unknown": 1})
    assert registry.store().prepare(ADA) == ("/cache",)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\nspec: 1.0.2-dev", (1, 1, 5)),
        ("containerd github.com/containerd/containerd/v2 v2.2.0 fa5f1\n", (2, 2, 0)),
        ("containerd github.com/containerd/containerd 1.7.29-1.amzn2023 0fe9\n", (1, 7, 29)),
        ("NVIDIA Container Toolkit CLI version 1.19.1\ncommit: 12ab", (1, 19, 1)),
        ("580.178.04\n580.178.04\n", (580, 178, 4)),
        ("runc version 1.4.0-rc.3", None),
        ("", None),
        ("version unknown", None),
    ],
)
def test_versions_are_read_as_programs_print_them(text: str, version: tuple[int, ...] | None) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize(
    ("name", "version", "is_fixed"),
    [
        *(("runc", one, False) for one in ((1, 1, 15), (1, 2, 7), (1, 3, 2))),
        *(("runc", one, True) for one in ((1, 2, 8), (1, 3, 3), (1, 4, 0), (1, 5, 2), (2, 0, 0))),
        *(("containerd", one, False) for one in ((1, 6, 39), (1, 7, 28), (2, 1, 4))),
        *(("containerd", one, True) for one in ((1, 7, 29), (2, 0, 7), (2, 3, 0))),
        *(("Docker", one, False) for one in ((20, 10, 24), (25, 0, 12), (27, 5, 1))),
        *(("Docker", one, True) for one in ((25, 0, 13), (28, 0, 0), (29, 9, 0))),
        *(("NVIDIA Container Toolkit", one, False) for one in ((1, 16, 2), (1, 17, 8), (1, 19, 0))),
        *(("NVIDIA Container Toolkit", one, True) for one in ((1, 19, 1), (1, 20, 0))),
        *(("NVIDIA driver", one, False) for one in ((535, 309, 1), (570, 211, 1), (580, 159, 3))),
        *(("NVIDIA driver", one, True) for one in ((580, 178, 4), (595, 91, 7), (620, 1, 1))),
    ],
)
def test_a_line_without_a_repaired_release_is_below(
    name: str, version: tuple[int, ...], is_fixed: bool
) -> None:
    [component] = [one for one in COMPONENTS if one.name == name]
    assert component.is_fixed(version) == is_fixed


class Programs(SystemHost):
    def __init__(self, **outputs: str) -> None:
        super().__init__()
        self.outputs = outputs

    def run(self, argv: Sequence[str], timeout: float = 60, stdin: str = "", environment: Any = None) -> str:
        if argv[0] not in self.outputs:
            raise AgentError(f"{argv[0]}: No such file or directory")
        return self.outputs[argv[0]]


def test_what_is_unknown_counts_as_below() -> None:
    good = {"runc": "runc version 1.4.4", "containerd": "v2.2.5", "docker": "29.9.0"}
    assert versions.outdated(Programs(**good), has_gpus=False) == ()
    toolkit, driver = versions.outdated(Programs(**good), has_gpus=True)
    assert toolkit == (
        "NVIDIA Container Toolkit of unknown version is vulnerable (CVE-2026-24260); install 1.19.1 or newer"
    )
    assert driver.startswith("NVIDIA driver of unknown version")
    [old] = versions.outdated(Programs(**good | {"runc": "runc version 1.1.5"}), has_gpus=False)
    assert old.startswith("runc 1.1.5 is vulnerable (CVE-2025-31133, ")


def test_every_least_version_has_its_vulnerability_and_source() -> None:
    for component in COMPONENTS:
        assert component.cve.startswith("CVE-2")
        assert component.source


def test_a_private_registry_gets_its_login_for_this_pull_only(tmp_path: Path) -> None:
    registry = Registry(10.0, 25.0)
    registry.run_directory = tmp_path
    registry.secrets = {"lab/registry": '{"username": "ada", "password": "open sesame"}'}
    store = registry.store()
    tenant = replace(PRIVATE, registry_secret="lab/registry")
    store.prepare(tenant)
    [login] = [argv for argv in registry.ran if "login" in argv]
    [pull] = [argv for argv in registry.ran if "pull" in argv]
    assert login[:2] == pull[:2] == ["docker", "--config"]
    assert login[2] == pull[2]
    assert login[3:] == ["login", "--username", "ada", "--password-stdin", "registry.example.org:5000"]
    assert registry.stdin == ["open sesame"]
    assert not any("open sesame" in word for argv in registry.ran for word in argv)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"username": "ada"}', "has other members; use only password and username"),
        ('{"username": "ada", "password": "hunter2", "email": "x"}', "has other members; use"),
        ('{"username": "ada", "password": 7}', "is malformed at password; store a JSON object of texts"),
        ("ada:hunter2", "is malformed; store a JSON object of texts"),
        ("[" * 100_000, "is malformed; store a JSON object of texts"),
    ],
)
def test_a_malformed_login_is_refused_without_its_value(text: str, message: str) -> None:
    registry = Registry(10.0, 25.0)
    registry.secrets = {"lab/registry": text}
    with pytest.raises(AgentError, match=f"secret lab/registry {message}") as caught:
        registry.store().prepare(replace(PRIVATE, registry_secret="lab/registry"))
    assert "hunter2" not in str(caught.value)
    assert not registry.pulled


def test_an_image_that_grows_while_it_is_unpacked_is_cancelled() -> None:
    class Growing(Registry):
        @contextlib.contextmanager
        def polling(self, on_poll: Callable[[], None]) -> Iterator[None]:
            self.on_poll = on_poll
            yield

        def run(
            self, argv: Sequence[str], timeout: float = 60, stdin: str = "", environment: Any = None
        ) -> str:
            output = super().run(argv, timeout, stdin, environment)
            if list(argv)[1] == "pull":
                self.on_poll()
            return output

    registry = Growing(0.01, 51.0)
    with pytest.raises(AgentError, match=r"does not fit on the disk: 9\.0 GiB are free"):
        registry.store().prepare(ADA)
    assert not registry.pulled


def variables(text: str, **environment: str) -> dict[str, str]:
    """Read the variables of a tenant's secret with this text."""
    secrets = TenantSecrets({"ada/keys": text}.__getitem__, str, Path("/nowhere"))
    return secrets.variables(replace(ADA, secret="ada/keys", environment=environment))


def test_a_secret_adds_environment_variables() -> None:
    assert variables('{"API_KEY": "a b=\\"c\\"", "_X": ""}', MODE="fast") == {"API_KEY": 'a b="c"', "_X": ""}
    assert TenantSecrets(lambda name: "", str, Path("/nowhere")).variables(ADA) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"MODE": "hunter2"}',
            "has the variable MODE; use names that are neither reserved nor in environment",
        ),
        ('{"GPU_SPOT_NOTICE": "hunter2"}', "the variable GPU_SPOT_NOTICE; use"),
        ('{"AWS_SESSION_TOKEN": "hunter2"}', "the variable AWS_SESSION_TOKEN; use"),
        ('{"KEY": "hunter2\\nHOME=/"}', "malformed at KEY; store"),
        ('{"KEY": ["hunter2"]}', "malformed at KEY; store"),
        ('{"hunter2 ": "x"}', "malformed; store"),
        ('"hunter2"', "malformed; store"),
        ("hunter2", "malformed; store"),
        ("", "malformed; store"),
    ],
)
def test_a_malformed_secret_is_refused_without_its_value(text: str, message: str) -> None:
    with pytest.raises(AgentError, match=f"secret ada/keys .*{message}") as caught:
        variables(text, MODE="fast")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("registry.example.org/lab/notebook", ["registry.example.org"]),
        ("localhost/notebook", ["localhost"]),
        ("box:5000/notebook", ["box:5000"]),
        ("lab/notebook", []),
        ("notebook", []),
    ],
)
def test_the_registry_is_the_one_that_docker_asks(tmp_path: Path, image: str, registry: list[str]) -> None:
    host = Registry(1.0, 1.0)
    secrets = TenantSecrets(lambda name: '{"username": "u", "password": "p"}', str, tmp_path)
    image = f"{image}@sha256:{'0' * 64}"
    with secrets.docker(host, replace(ADA, image=image, registry_secret="r")):
        [login] = host.ran
    assert login[login.index("--password-stdin") + 1 :] == registry


class Disk(SystemHost):
    """Images on a disk; Docker keeps those that containers use."""

    def __init__(self, *present: str) -> None:
        super().__init__()
        self.present, self.used, self.is_broken = set(present), set[str](), False

    def run(self, argv: Sequence[str], timeout: float = 60, stdin: str = "", environment: Any = None) -> str:
        match list(argv):
            case ["docker", "image", "rm", image]:
                if self.is_broken or image in self.used:
                    raise AgentError("docker: exit 1: conflict: image is being used by running container")
                if image not in self.present:
                    raise AgentError(f"docker: exit 1: Error response from daemon: No such image: {image}")
                self.present.remove(image)
        return ""


@given(st.randoms(use_true_random=False))
def test_images_that_no_container_uses_leave_the_disk(random: Random) -> None:
    disk, clock = Disk("another's"), FakeClock()
    with tempfile.TemporaryDirectory() as directory:
        for day in range(40):  # each as an agent that has started anew
            images = PulledImages(disk, clock, Path(directory) / "images.json")
            image = f"image-{random.randrange(day // 2 + 1)}"
            disk.is_broken = random.random() < 0.1
            if random.random() < 0.1:
                with pytest.raises(AgentError):
                    images.pull(image, _unreachable)
            images.pull(image, lambda image=image: disk.present.add(image))  # type: ignore[misc]
            disk.used = {image, *random.sample(sorted(disk.present), min(2, len(disk.present)))}
            clock.advance(random.choice((60.0, GRACE_SECONDS, 86_400.0)))
        disk.is_broken = False
        clock.advance(GRACE_SECONDS)
        PulledImages(disk, clock, Path(directory) / "images.json").pull("last", lambda: None)
    assert disk.present == disk.used | {"another's"}


def _unreachable() -> None:
    raise AgentError("registry unreachable")
