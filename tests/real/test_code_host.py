"""The rehearsal's git host serves fetches over TLS."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.real.job import code_host, repository
from tests.real.job.code_host import CodeHost

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/training"
STANDS_FOR = "https://git.example.org"


def git(*argv: str | Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    around = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "HOME": os.devnull, **(env or {})}
    return subprocess.run(["git", *map(str, argv)], env=around, text=True, capture_output=True, check=False)


@pytest.fixture
def commit(tmp_path: Path) -> str:
    return repository.made_of(EXAMPLE, tmp_path / "served/examples/training")


@pytest.fixture
def host(tmp_path: Path, commit: str) -> Iterator[CodeHost]:
    with code_host.serving(tmp_path / "served", tmp_path / "tls") as running:
        yield running


def fetched(at: Path, env: Mapping[str, str], commit: str) -> subprocess.CompletedProcess[str]:
    git("init", "--quiet", at)
    return git("-C", at, "fetch", "--quiet", "--depth=1", f"{STANDS_FOR}/examples/training", commit, env=env)


def test_a_revision_is_fetched_by_its_id_with_all_its_files(
    tmp_path: Path, host: CodeHost, commit: str
) -> None:
    at = tmp_path / "here"
    done = fetched(at, host.environment(STANDS_FOR), commit)
    assert done.returncode == 0, done.stderr
    assert git("-C", at, "checkout", "--quiet", "--detach", commit).returncode == 0
    assert git("-C", at, "fsck", "--strict").returncode == 0
    for path in EXAMPLE.iterdir():
        if path.is_file():
            assert (at / path.name).read_bytes() == path.read_bytes()


def test_a_client_without_the_authority_cannot_fetch(tmp_path: Path, host: CodeHost, commit: str) -> None:
    env = {k: v for k, v in host.environment(STANDS_FOR).items() if k != "GIT_SSL_CAINFO"}
    done = fetched(tmp_path / "here", env, commit)
    assert done.returncode != 0
    assert "certificate" in done.stderr


def test_a_revision_that_is_not_there_is_an_error(tmp_path: Path, host: CodeHost) -> None:
    done = fetched(tmp_path / "here", host.environment(STANDS_FOR), "f" * 40)
    assert done.returncode != 0
    assert "not our ref" in done.stderr


def test_only_the_repositories_are_served(tmp_path: Path, host: CodeHost) -> None:
    repository.made_of(EXAMPLE, tmp_path / "beside")
    for path in ("/moon", "/../beside", "/examples"):
        done = git("ls-remote", f"{host.url}{path}", env=host.environment(STANDS_FOR))
        assert done.returncode != 0, path
        assert "not found" in done.stderr


def test_a_private_repository_needs_the_login(tmp_path: Path, commit: str) -> None:
    with code_host.serving(tmp_path / "served", tmp_path / "tls", "job:secret") as host:
        env = host.environment(STANDS_FOR)
        assert fetched(tmp_path / "a", env, commit).returncode != 0
        url = host.url.replace("https://", "https://job:secret@")
        assert git("ls-remote", f"{url}/examples/training", env=env).stdout.split()[0] == commit


def test_the_commit_follows_from_the_files_alone(tmp_path: Path, commit: str) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in EXAMPLE.iterdir():
        if path.is_file():
            (copy / path.name).write_bytes(path.read_bytes())
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__" / "train.pyc").touch()
    assert repository.commit_of(copy) == commit
    (copy / "train.py").write_text("other")
    assert repository.commit_of(copy) != commit
