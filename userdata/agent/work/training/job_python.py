"""A job's Python environment, built by uv from its requirements and stored on the data volume.

Environments are keyed by the requirements' content, Python version and platform, so the next start, on any
instance, downloads nothing. An environment without the mark file is incomplete and is rebuilt.
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
from userdata.agent.machine import accounts, log
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import LOAD, SLOW, Host
from userdata.agent.work.training.environment import CommandLine

UV: Final = "0.13.9"
UV_HASHES: Final = (
    "d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19",
    "5435c5ce14a56431208ca0996416d310f1598e8c2c8ba707688985a16bb82dbe",
)
"""SHA-256 of uv's wheels for Linux with glibc, x86_64 and aarch64; pip accepts no other file."""

MARK: Final = ".gpu-spot-whole"
_RETAINED: Final = 2
"""Number of environments retained: the current and the previous one."""

_INCLUDED: Final = re.compile(r"^\s*(?:-r|-c|--requirement|--constraint)[ =]\s*(\S+)", re.M)
# A requirement in the repository itself: it may change with each commit. Source: pip's documentation,
# "Requirements File Format" (paths of archives and projects); PEP 751, the keys ``path`` of a package.
_LOCAL: Final = re.compile(
    r"^[ \t]*(?:-e|--editable|\.|/|file:|[^\s:@#-][^\s:@#]*(?:/|\.(?:whl|zip|tar\.\w+)\b))|\bpath\s*="
    r"|^[ \t]*(?:[^\s:@#]+[ \t]*@|(?:-f|--find-links)[ =])[ \t]*(?=\S)(?:file:|(?!\S+://))",
    re.M,
)


class JobPython:
    """Builds or reuses the environment of a job.

    Args:
        host: the machine.
        training: the job.
        code: the job's checkout, with the requirements.
        directory: where environments are stored, on the data volume.
        tools: where uv is installed, on the root disk.
        cache: uv's download cache, on ephemeral storage.
    """

    def __init__(
        self, host: Host, training: Training, code: Path, directory: Path, tools: Path, cache: Path
    ) -> None:
        assert training.python is not None
        self.user = training.user
        self._host = host
        self._training = training
        self._python = training.python
        self._code = code
        self._directory = directory
        self._uv = tools / UV / "bin" / "uv"
        self._cache = cache
        self._as_user = ["runuser", "--user", training.user, "--"]
        self._path: Path | None = None

    def clear(self) -> None:
        """No-op: systemd ended its processes with the agent's unit."""

    def prepare(self) -> None:
        """Build the environment if it is missing.

        Raises:
            AgentError: the requirements file is missing or cannot be resolved; the message names it.
        """
        path = self._directory / self._key()
        if self._is_complete(path):
            log.info("environment reused", environment=path.name)
        else:
            self._build(path)
        self._run("touch", str(path / MARK))
        self._path = path
        self._remove_unused()

    def start(self, command: list[str], environment: Mapping[str, str], directory: Path) -> CommandLine:
        """Return the command with the environment's programs first on ``PATH``."""
        assert self._path is not None, "prepare() comes first"
        path = f"{self._path / 'bin'}:{environment.get('PATH', os.defpath)}"
        return CommandLine(command, {**environment, "PATH": path, "VIRTUAL_ENV": str(self._path)})

    def _key(self) -> str:
        """Return a hash of all inputs of the environment, with the included requirements files."""
        digest = hashlib.sha256()
        texts = list(self._texts(self._python.requirements, set()))
        if any(_LOCAL.search(text) for text in texts):
            texts.append(self._training.revision)
        libc = "-".join(platform.libc_ver())
        for part in (self._python.version, platform.machine(), libc, *texts):
            digest.update(f"{len(part)}:{part}".encode())
        return digest.hexdigest()[:32]

    def _texts(self, name: str, visited: set[Path]) -> Iterator[str]:
        path = self._code / name
        if path in visited:
            return
        visited.add(path)
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError):
            where = f"{self._training.repository} at {self._training.revision}"
            raise AgentError(f"{name} is not a text file in {where}; name a requirements file") from None
        yield text
        for inner in _INCLUDED.findall(text):
            if "://" not in inner:
                yield from self._texts(os.path.normpath(Path(name).parent / inner), visited)

    def _is_complete(self, path: Path) -> bool:
        """Return whether the environment is complete and its interpreter exists on this machine."""
        if not (path / MARK).exists():
            return False
        try:
            self._run(str(path / "bin" / "python"), "-c", "pass")
        except AgentError as error:
            log.warning("environment not usable", environment=path.name, error=str(error))
            return False
        return True

    def _build(self, path: Path) -> None:
        requirements, version = self._python.requirements, self._python.version
        log.info("building environment", environment=path.name, requirements=requirements, python=version)
        self._fetch_uv()
        accounts.make_directory(self._host, self._directory, self.user)
        self._run("rm", "--recursive", "--force", str(path))
        uv = [str(self._uv), "--quiet", "--no-progress", "--directory", str(self._code)]
        try:
            # At its final path: scripts in it contain the interpreter's path.
            self._run(*uv, "venv", "--no-project", "--python", version, str(path))
            python = ["--python", str(path / "bin" / "python")]
            self._run(*uv, "pip", "install", *python, "--compile-bytecode", "--requirement", requirements)
        except AgentError as error:
            error.args = (f"{requirements}: {error}",)
            raise
        # Flush before the mark is written: the instance may terminate at any time.
        self._host.run(["sync", "--file-system", str(path)], SLOW)

    def _run(self, *argv: str) -> str:
        return self._host.run([*self._as_user, *argv], LOAD, environment=self._settings())

    def _settings(self) -> dict[str, str]:
        """Return uv's settings; the job's ``environment`` overrides them, with pip's index variables too."""
        declared = self._training.environment
        settings = {
            "HOME": str(self._cache),
            "UV_CACHE_DIR": str(self._cache / "uv"),
            "UV_PYTHON_INSTALL_DIR": str(self._directory / "python"),
            "UV_PYTHON_PREFERENCE": "system",
            "UV_LINK_MODE": "copy",
            "UV_SYSTEM_CERTS": "1",
            "COLUMNS": "1000",
        }
        if "PIP_INDEX_URL" in declared:
            settings["UV_DEFAULT_INDEX"] = declared["PIP_INDEX_URL"]
        if "PIP_EXTRA_INDEX_URL" in declared:
            settings["UV_EXTRA_INDEX_URL"] = declared["PIP_EXTRA_INDEX_URL"]
        return {**settings, **declared}

    def _fetch_uv(self) -> None:
        """Install uv by the machine image's pip, from the job's index, pinned by hash."""
        if self._uv.exists():
            return
        temporary = self._uv.parents[1].with_name(f".{UV}.new")
        self._host.run(["rm", "--recursive", "--force", str(temporary)], SLOW)
        declared = self._training.environment
        index = (
            declared.get("PIP_INDEX_URL") or declared.get("UV_DEFAULT_INDEX") or declared.get("UV_INDEX_URL")
        )
        requirement = " ".join([f"uv=={UV}", *(f"--hash=sha256:{digest}" for digest in UV_HASHES)])
        pip = ["python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        pip += ["--only-binary=:all:", "--require-hashes"]
        pip += ["--target", str(temporary), "--requirement", "/dev/stdin"]
        self._host.run(pip, LOAD, requirement, {**declared, **({"PIP_INDEX_URL": index} if index else {})})
        self._host.run(["mv", "--no-target-directory", str(temporary), str(self._uv.parents[1])], SLOW)

    def _remove_unused(self) -> None:
        """Remove the least recently used environments."""
        marks = sorted(self._directory.glob(f"*/{MARK}"), key=lambda mark: mark.stat().st_mtime, reverse=True)
        for mark in marks[_RETAINED:]:
            log.info("environment removed", environment=mark.parent.name)
            self._run("rm", "--recursive", "--force", str(mark.parent))
