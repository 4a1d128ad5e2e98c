from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from contracts.agent.config import Training
from tests.node.units import AsMe
from tests.real.job.code_host import CodeHost, serving
from tests.waiting import run_process
from userdata.agent.machine.errors import AgentError
from userdata.agent.work.training.checkout import Credentials, checkout, credentials

QUIET: Final = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def git(folder: Path, *arguments: str) -> str:
    """Run git with an author name; return its output."""
    argv = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.com"]
    argv += ["-c", "protocol.file.allow=always", *arguments]
    done = run_process(argv, check=True, env={**os.environ, **QUIET})
    return done.stdout.strip()


def repository(folder: Path, **files: str) -> str:
    """Make a repository with a commit of ``files``, or add one to it; return the commit's id."""
    if not (folder / ".git").exists():
        folder.mkdir(parents=True)
        git(folder, "init", "-q")
        git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    for name, text in files.items():
        (folder / name).write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "-qm", "a change")
    return git(folder, "rev-parse", "HEAD")


SECRET = "tok3n-of-nobody"


Serve = Callable[..., CodeHost]
"""Serves the repositories below a folder of the test, without TLS, to who knows a login."""


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    with contextlib.ExitStack() as running:
        yield lambda name, login="": running.enter_context(serving(tmp_path / name, None, login))


@pytest.fixture
def server(serve: Serve) -> CodeHost:
    return serve("served", f"me:{SECRET}")


def job(address: str, revision: str) -> Training:
    return Training("j", "t", address, revision, ("x",), "somebody", "p")


def test_the_pinned_revision_is_checked_out_over_whatever_was_there(tmp_path: Path) -> None:
    source, code = tmp_path / "source", tmp_path / "code"
    for text in ("one", "two"):
        revision = repository(source, f=text)
        checkout(AsMe(), job(f"file://{source}", revision), code)
        assert (code / "f").read_text() == text
        assert git(code, "rev-parse", "HEAD") == revision
        (code / "f").write_text("changed")
        (code / "left").write_text("behind")
        (code / ".git" / "hooks" / "post-checkout").write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
        (code / ".git" / "hooks" / "post-checkout").chmod(0o755)
    checkout(AsMe(), job(f"file://{source}", revision), code)
    assert not (code / "left").exists()
    assert not (tmp_path / "hooked").exists()
    with pytest.raises(AgentError, match="git: exit 128"):
        checkout(AsMe(), job(f"file://{source}", "0" * 40), code)
    assert (code / "f").read_text() == "two"


def test_what_a_broken_start_left_is_in_nobodys_way(tmp_path: Path) -> None:
    revision = repository(tmp_path / "source", f="one")
    left = tmp_path / ".code.new"
    (left / ".git").mkdir(parents=True)
    (left / ".git" / "HEAD").write_text("half")
    checkout(AsMe(), job(f"file://{tmp_path}/source", revision), tmp_path / "code")
    assert not left.exists()
    assert (tmp_path / "code" / "f").read_text() == "one"


def test_it_is_handed_over_to_the_jobs_user_when_all_is_there(tmp_path: Path) -> None:
    host = AsMe()
    checkout(
        host, job(f"file://{tmp_path}/source", repository(tmp_path / "source", f="1")), tmp_path / "code"
    )
    users = [argv[2] for argv, _, _ in host.ran if argv[0] == "runuser"]
    assert set(users) == {"gpu-spot-git"}
    names = [argv[0] for argv, _, _ in host.ran]
    handed = [argv for argv, _, _ in host.ran if argv[0] == "chown"]
    assert handed == [["chown", "--recursive", "--no-dereference", "somebody:", f"{tmp_path}/.code.new"]]
    assert "runuser" not in names[names.index("chown") :]


def test_a_private_repository_opens_to_its_secret_which_stays_nowhere(
    tmp_path: Path, server: CodeHost, caplog: pytest.LogCaptureFixture
) -> None:
    revision = repository(tmp_path / "served" / "private", f="hidden")
    host, code = AsMe(), tmp_path / "code"
    training = job(f"{server.url}/private", revision)
    with pytest.raises(AgentError, match="terminal prompts disabled"):
        checkout(host, training, code)
    with pytest.raises(AgentError, match="Authentication failed") as refused:
        checkout(host, training, code, Credentials("me", "another"))
    assert "another" not in str(refused.value)
    host.ran.clear()
    checkout(host, training, code, Credentials("me", SECRET))
    assert (code / "f").read_text() == "hidden"
    assert not [argv for argv, _, _ in host.ran if SECRET in " ".join(argv)]
    operations = [argv[argv.index("git") + 3] for argv, env, _ in host.ran if SECRET in str(env)]
    assert operations == ["fetch"]
    assert not [path for path in code.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert SECRET not in caplog.text


def test_submodules_come_at_their_commits_and_another_host_is_shown_nothing(
    tmp_path: Path, server: CodeHost, serve: Serve
) -> None:
    served, other_host = tmp_path / "served", serve("elsewhere")
    inner = repository(served / "inner", f="deep")
    pinned = repository(served / "lib", g="pinned")
    public = repository(tmp_path / "elsewhere" / "public", h="open")
    main = served / "main"
    repository(main, f="main")
    for name, home in (("inner", served / "lib"), ("lib", main), ("public", main)):
        folder = served if name != "public" else tmp_path / "elsewhere"
        git(home, "submodule", "--quiet", "add", str(folder / name), name)
        address = f"{other_host.url}/public" if name == "public" else f"../{name}"  # relative to its own
        git(home, "config", "--file", ".gitmodules", f"submodule.{name}.url", address)
        if home == served / "lib":
            pinned = repository(home)
    git(main / "lib", "pull", "--quiet", str(served / "lib"))
    revision = repository(main)
    repository(served / "lib", g="newer")
    training = replace(job(f"{server.url}/main", revision), submodules=True)
    code = tmp_path / "code"
    checkout(AsMe(), training, code, Credentials("me", SECRET))
    assert (code / "lib" / "g").read_text() == "pinned"
    assert (code / "lib" / "inner" / "f").read_text() == "deep"
    assert (code / "public" / "h").read_text() == "open"
    assert [git(code / p, "rev-parse", "HEAD") for p in ("lib", "lib/inner", "public")] == [
        pinned,
        inner,
        public,
    ]
    assert other_host.requests
    assert not [shown for _, shown in other_host.requests if shown]
    checkout(AsMe(), replace(training, submodules=False), code, Credentials("me", SECRET))
    assert not list((code / "lib").iterdir())


def test_a_submodule_cannot_name_a_place_of_this_machine(tmp_path: Path, server: CodeHost) -> None:
    repository(tmp_path / "local", f="of the host")
    main = tmp_path / "served" / "main"
    repository(main, f="main")
    git(main, "submodule", "--quiet", "add", str(tmp_path / "local"), "local")
    training = replace(job(f"{server.url}/main", repository(main)), submodules=True)
    with pytest.raises(AgentError, match="git: exit"):
        checkout(AsMe(), training, tmp_path / "code", Credentials("me", SECRET))
    assert not (tmp_path / "code").exists()


@pytest.mark.parametrize(
    ("text", "user", "password"),
    [("t0ken", "x-access-token", "t0ken"), ("bot:t0ken\n", "bot", "t0ken"), ("a:b:c", "a:b", "c")],
)
def test_a_secret_is_a_token_or_a_name_and_a_token(text: str, user: str, password: str) -> None:
    found = credentials("git", text)
    assert (found.user, found.password) == (user, password)
    assert password not in repr(found)


@pytest.mark.parametrize("text", ["", "me:", '{"token":"t0ken"}', "to\nken", "to ken"])
def test_another_secret_is_refused_and_not_shown(text: str) -> None:
    message = re.escape("secret git is malformed; store TOKEN or USER:TOKEN")
    with pytest.raises(AgentError, match=message) as error:
        credentials("git", text)
    assert not text or text not in str(error.value)


def test_another_host_that_asks_is_shown_nothing_either(
    tmp_path: Path, server: CodeHost, serve: Serve
) -> None:
    other_host = serve("elsewhere", "a:b")
    repository(tmp_path / "elsewhere" / "lib", h="closed")
    main = tmp_path / "served" / "main"
    repository(main, f="main")
    git(main, "submodule", "--quiet", "add", str(tmp_path / "elsewhere" / "lib"), "lib")
    git(main, "config", "--file", ".gitmodules", "submodule.lib.url", f"{other_host.url}/lib")
    training = replace(job(f"{server.url}/main", repository(main)), submodules=True)
    with pytest.raises(AgentError, match="git: exit"):
        checkout(AsMe(), training, tmp_path / "code", Credentials("me", SECRET))
    assert other_host.requests
    assert not [shown for _, shown in other_host.requests if shown]
