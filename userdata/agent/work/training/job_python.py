"""A Python of the job's own, built by uv from its requirements and kept on the data volume.

One for each content of the requirements, version of Python and kind of machine: the next start, here or on
another instance, asks no index. What was not finished has no mark and is built anew.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from contracts.agent.config import Training
from userdata.agent.machine import log
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import Host
from userdata.agent.work.training.environment import Start

UV: Final = "0.13.9"
UV_HASHES: Final = (
    "d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19",
    "5435c5ce14a56431208ca0996416d310f1598e8c2c8ba707688985a16bb82dbe",
)
"""SHA-256 of its wheels for Linux with glibc, x86_64 and aarch64: pip takes no other file for it."""

MARK: Final = ".gpu-spot-whole"
_KEPT: Final = 2
"""Environments that stay: this one, and the one that was used before."""

_INCLUDED: Final = re.compile(r"^\s*(?:-r|-c|--requirement|--constraint)[ =]\s*(\S+)", re.M)
# A package of the repository itself: another commit, another package.
_LOCAL: Final = re.compile(r"^\s*(?:-e|--editable|\.|/|file:|\S+\s*@\s*file:)", re.M)


class JobPython:
    """Builds and finds the environment of a job.

    Args:
        code: the job's checkout, in which the requirements lie.
        folder: where environments are kept, on the data volume.
        tools: where uv is put, on the machine's own disk.
        cache: what uv downloads, where nothing lasts.
    """

    def __init__(
        self, host: Host, training: Training, code: Path, folder: Path, tools: Path, cache: Path
    ) -> None:
        assert training.python is not None
        self.user = training.user
        self._host = host
        self._training = training
        self._python = training.python
        self._code = code
        self._folder = folder
        self._uv = tools / UV / "bin" / "uv"
        self._cache = cache
        self._as_user = ["runuser", "--user", training.user, "--"]
        self._home: Path | None = None

    def clear(self) -> None:
        """See ``Workplace``: what it ran ended with the agent's unit."""

    def prepare(self) -> None:
        """Build what is not there.

        Raises:
            AgentError: the requirements are not in the repository, or cannot be met; it names their file.
        """
        home = self._folder / self._key()
        if self._is_whole(home):
            log.info("environment found", environment=home.name)
        else:
            self._build(home)
        self._run("touch", str(home / MARK))
        self._home = home
        self._forget()

    def start(self, command: list[str], environment: Mapping[str, str], place: Path) -> Start:
        """Return the command with the environment's programs first on its path."""
        assert self._home is not None, "prepare() comes first"
        path = f"{self._home / 'bin'}:{environment.get('PATH', os.defpath)}"
        return Start(command, {**environment, "PATH": path, "VIRTUAL_ENV": str(self._home)})

    def _key(self) -> str:
        """Return what the environment depends on: the requirements with all that they include, and so on."""
        found = hashlib.sha256()
        texts = list(self._texts(self._python.requirements, set()))
        if any(_LOCAL.search(text) for text in texts):
            texts.append(self._training.revision)
        libc = "-".join(platform.libc_ver())
        for part in (self._python.version, platform.machine(), libc, *texts):
            found.update(f"{len(part)}:{part}".encode())
        return found.hexdigest()[:32]

    def _texts(self, name: str, seen: set[Path]) -> Iterator[str]:
        path = self._code / name
        if path in seen:
            return
        seen.add(path)
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError):
            where = f"{self._training.repository} at {self._training.revision}"
            raise AgentError(f"{name}: no text in {where}; allowed: a requirements file") from None
        yield text
        for inner in _INCLUDED.findall(text):
            if "://" not in inner:
                yield from self._texts(os.path.normpath(Path(name).parent / inner), seen)

    def _is_whole(self, home: Path) -> bool:
        """Tell whether it was finished, and its interpreter is on this machine, too."""
        if not (home / MARK).exists():
            return False
        try:
            self._run(str(home / "bin" / "python"), "-c", "pass")
        except AgentError as error:
            log.warning("environment is no use here", environment=home.name, error=str(error))
            return False
        return True

    def _build(self, home: Path) -> None:
        requirements, version = self._python.requirements, self._python.version
        log.info("environment is built", environment=home.name, requirements=requirements, python=version)
        self._fetch_uv()
        self._host.run(["install", "--directory", f"--owner={self.user}", str(self._folder)])
        self._run("rm", "--recursive", "--force", str(home))
        uv = [str(self._uv), "--quiet", "--no-progress", "--directory", str(self._code)]
        try:
            # In its final place: programs in it name their interpreter by its path.
            self._run(*uv, "venv", "--no-project", "--python", version, str(home))
            python = ["--python", str(home / "bin" / "python")]
            self._run(*uv, "pip", "install", *python, "--compile-bytecode", "--requirement", requirements)
        except AgentError as error:
            error.args = (f"{requirements}: {error}",)
            raise
        # The mark must not outlive what it speaks of when the instance is taken.
        self._host.run(["sync", "--file-system", str(home)])

    def _run(self, *argv: str) -> str:
        return self._host.run([*self._as_user, *argv], environment=self._settings())

    def _settings(self) -> dict[str, str]:
        """Return uv's settings; what the stack file says in its place counts, pip's names of indexes too."""
        own = self._training.environment
        found = {
            "HOME": str(self._cache),
            "UV_CACHE_DIR": str(self._cache / "uv"),
            "UV_PYTHON_INSTALL_DIR": str(self._folder / "python"),
            "UV_PYTHON_PREFERENCE": "system",
            "UV_LINK_MODE": "copy",
            "UV_SYSTEM_CERTS": "1",
            "COLUMNS": "1000",
        }
        if "PIP_INDEX_URL" in own:
            found["UV_DEFAULT_INDEX"] = own["PIP_INDEX_URL"]
        if "PIP_EXTRA_INDEX_URL" in own:
            found["UV_EXTRA_INDEX_URL"] = own["PIP_EXTRA_INDEX_URL"]
        return {**found, **own}

    def _fetch_uv(self) -> None:
        """Let the machine image's pip bring uv here, from the job's own index, by its hash."""
        if self._uv.exists():
            return
        new = self._uv.parents[1].with_name(f".{UV}.new")
        self._host.run(["rm", "--recursive", "--force", str(new)])
        own = self._training.environment
        index = own.get("PIP_INDEX_URL") or own.get("UV_DEFAULT_INDEX") or own.get("UV_INDEX_URL")
        wanted = " ".join([f"uv=={UV}", *(f"--hash=sha256:{one}" for one in UV_HASHES)])
        pip = ["python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        pip += [
            "--only-binary=:all:",
            "--require-hashes",
            "--target",
            str(new),
            "--requirement",
            "/dev/stdin",
        ]
        self._host.run(pip, wanted, {**own, **({"PIP_INDEX_URL": index} if index else {})})
        self._host.run(["mv", "--no-target-directory", str(new), str(self._uv.parents[1])])

    def _forget(self) -> None:
        """Remove the environments that were not used for longest."""
        marks = sorted(self._folder.glob(f"*/{MARK}"), key=lambda mark: mark.stat().st_mtime, reverse=True)
        for mark in marks[_KEPT:]:
            log.info("environment removed", environment=mark.parent.name)
            self._run("rm", "--recursive", "--force", str(mark.parent))
