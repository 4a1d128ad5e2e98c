"""A Lambda function: its deployed archive, run in this process.

The archive is unpacked and imported into a separate module namespace: the function never uses the source
tree's modules of the same name. It has its own environment variables.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import shutil
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from moto.moto_api._internal import mock_random


@dataclass(frozen=True, slots=True)
class Context:
    """The ``context`` argument of a handler, with Lambda's names."""

    function_name: str
    function_version: str
    invoked_function_arn: str
    memory_limit_in_mb: str
    aws_request_id: str
    log_group_name: str
    log_stream_name: str
    timeout_ms: int

    def get_remaining_time_in_millis(self) -> int:
        """Return the full timeout: simulated time does not pass during an invocation."""
        return self.timeout_ms


class DeployedFunction:
    """A function, loaded from its deployed archive at the first call."""

    def __init__(self, configuration: Any, code: bytes, folder: Path, region: str) -> None:
        self.name: str = configuration.function_name
        self._code = code
        self._folder = folder
        self._handler_path: str = configuration.handler
        self._arn: str = configuration.function_arn
        self._memory = str(configuration.memory_size)
        self._timeout_ms = int(configuration.timeout) * 1000
        variables: Mapping[str, str] = configuration.environment_vars or {}
        self._environment = {
            "AWS_REGION": region,
            "AWS_DEFAULT_REGION": region,
            "AWS_LAMBDA_FUNCTION_NAME": self.name,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": self._memory,
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "_HANDLER": self._handler_path,
            **variables,
        }
        self._out = _Log()
        self.cool()

    def cool(self) -> None:
        """Discard the loaded modules: the next call is a cold start."""
        self._space: dict[str, ModuleType] = {}
        self._owned: frozenset[str] = frozenset()
        self._handler: Any = None

    def call(self, event: Any) -> Any:
        """Call the handler and return its result; its exceptions propagate."""
        with self._inside():
            if self._handler is None:
                self._handler = self._load()
            return self._handler(event, self._context())

    def drain(self) -> tuple[str, ...]:
        """Return the lines written since the last call."""
        return self._out.drain()

    def module(self, name: str) -> ModuleType:
        """Return a module of the function's namespace, for inspection."""
        return self._space[name]

    @contextlib.contextmanager
    def _inside(self) -> Iterator[None]:
        if not self._owned:
            shutil.rmtree(self._folder, ignore_errors=True)
            with zipfile.ZipFile(io.BytesIO(self._code)) as source:
                source.extractall(self._folder)
            self._owned = frozenset(entry.name.removesuffix(".py") for entry in self._folder.iterdir())
        outside = self._own_modules()
        sys.modules.update(self._space)
        sys.path.insert(0, str(self._folder))
        try:
            with mock.patch.dict(os.environ, self._environment), contextlib.redirect_stdout(self._out):
                yield
        finally:
            sys.path.remove(str(self._folder))
            self._space = self._own_modules()
            sys.modules.update(outside)

    def _own_modules(self) -> dict[str, ModuleType]:
        """Remove loaded modules with the names of this function's modules."""
        begins = tuple(self._owned)  # this skips nearly all of some thousands
        near = [name for name in sys.modules if name.startswith(begins)]
        return {name: sys.modules.pop(name) for name in near if name.partition(".")[0] in self._owned}

    def _load(self) -> Any:
        module_name, _, attribute = self._handler_path.rpartition(".")
        importlib.invalidate_caches()
        module = importlib.import_module(module_name.replace("/", "."))
        return getattr(module, attribute)

    def _context(self) -> Context:
        return Context(
            function_name=self.name,
            function_version="$LATEST",
            invoked_function_arn=self._arn,
            memory_limit_in_mb=self._memory,
            aws_request_id=str(mock_random.uuid4()),
            log_group_name=f"/aws/lambda/{self.name}",
            log_stream_name="local",
            timeout_ms=self._timeout_ms,
        )


class _Log(io.TextIOBase):
    """Collects a function's output; a logger may hold it across invocations."""

    def __init__(self) -> None:
        self._text: list[str] = []

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._text.append(text)
        return len(text)

    def drain(self) -> tuple[str, ...]:
        lines = tuple("".join(self._text).splitlines())
        self._text.clear()
        return lines
