"""Functions that run on workers, by a decorator: one queue serves all functions of a `Tasks`.

Example, in ``jobs.py``, which the workers and their callers import:

    tasks = Tasks("jobs")

    @tasks.task()
    def thumbnail(image: str, size: int = 128) -> str: ...

A worker is ``spot-work jobs:tasks --queue jobs``. A caller connects once, and each call returns a future:

    with tasks.connect(url):
        path = thumbnail.send("a.png", size=64).result()

Arguments and results are serialized as JSON. `thumbnail(…)` runs the function here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import update_wrapper
from typing import Any, Final, Generic, ParamSpec, TypeVar

from spot_work.client import Client
from spot_work.queue.settings import Queue
from spot_work.queue.url_source import BrokerUrl

P = ParamSpec("P")
T = TypeVar("T")

_NAME: Final = "task"
_ARGUMENTS: Final = "args"
_NAMED_ARGUMENTS: Final = "kwargs"


class WorkerTask(Generic[P, T]):
    """A function of a `Tasks`: a call runs it here, `send` on a worker."""

    def __init__(self, tasks: Tasks, function: Callable[P, T], name: str, timeout: float) -> None:
        update_wrapper(self, function)
        self.function = function
        self.name = name
        self._tasks = tasks
        self._timeout = timeout

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the function in this process."""
        return self.function(*args, **kwargs)

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run the function on a worker; return a future, with errors as for `Client.submit`."""
        value = {_NAME: self.name, _ARGUMENTS: args, _NAMED_ARGUMENTS: kwargs}
        return self._tasks.client.submit(value, self._timeout)


class Tasks:
    """The functions that the workers of a queue run; as a worker's function it runs the named one."""

    def __init__(self, queue: Queue | str) -> None:
        self.queue = queue
        self._tasks: dict[str, WorkerTask[Any, Any]] = {}
        self._client: Client | None = None
        self._lock = threading.Lock()
        self.__name__ = "tasks"

    def task(self, name: str = "", timeout: float = 60.0) -> Callable[[Callable[P, T]], WorkerTask[P, T]]:
        """Return a decorator that adds a function, whose arguments and result JSON can hold.

        Args:
            name: in the requests; the function's name without one. Workers that run know the former name
                only: change it after all of them have the function.
            timeout: seconds until a request expires.

        Raises:
            ValueError: the name is in use.
        """

        def add(function: Callable[P, T]) -> WorkerTask[P, T]:
            key = name or function.__name__
            if key in self._tasks:
                raise ValueError(f"task {key!r} exists already, allowed: one function for a name")
            added = self._tasks[key] = WorkerTask(self, function, key, timeout)
            return added

        return add

    def __call__(self, value: Any) -> Any:
        """Run the function that a request names; a worker calls it.

        Raises:
            LookupError: no function has the name.
            TypeError: the request was not sent by a `WorkerTask`.
        """
        if not isinstance(value, dict) or not isinstance(value.get(_NAME), str):
            raise TypeError(f"{str(value)[:80]}, allowed: a request that was sent by a task")
        name = value[_NAME]
        if name not in self._tasks:
            raise LookupError(f"no task {name[:80]!r}; there are: {', '.join(sorted(self._tasks))}")
        return self._tasks[name].function(*value.get(_ARGUMENTS, ()), **value.get(_NAMED_ARGUMENTS, {}))

    @contextmanager
    def connect(self, url: BrokerUrl) -> Iterator[Client]:
        """Open the client that `WorkerTask.send` uses, and close it at the end.

        Raises:
            RuntimeError: it is open already.
        """
        with self._lock:
            if self._client is not None:
                raise RuntimeError("the tasks are connected already, allowed: one connection")
            client = self._client = Client(url, self.queue)
        try:
            with client:
                yield client
        finally:
            self._client = None

    @property
    def client(self) -> Client:
        """The open client; raise ``RuntimeError`` without one."""
        if self._client is None:
            raise RuntimeError("the tasks are not connected, allowed: send within tasks.connect(url)")
        return self._client
