"""Several nodes of one training: survivors go on with a smaller world after a loss.

`init` takes the place of ``torch.distributed.init_process_group``. From there on the script runs in a child
of its process, in each world in a new one: nothing of a broken group is left, such as a collective that waits
for a lost node, imports are kept, and a launcher or agent sees one process that does not end.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import torch
from torch import distributed

from spot_training.checkpointer import FOLDER_VARIABLE
from spot_training.errors import SpotTrainingError, before_errors, one_line, print_errors_in_one_line, say
from spot_training.nodes import membership, process
from spot_training.nodes.membership import NodeLimits, NodeWorld, TrainingNode, limits_of
from spot_training.nodes.registry import NodeRegistry
from spot_training.storage.lock import WORLD_VARIABLE

NODES_VARIABLE: Final = "SPOT_TRAINING_NODES"
"""``4`` or ``2:4``: how many nodes train together; unset: this machine alone."""
NAME_VARIABLE: Final = "SPOT_TRAINING_NODE"
"""The node's name, the same for its processes and after a restart."""
ADDRESS_VARIABLE: Final = "SPOT_TRAINING_ADDRESS"
"""Where other nodes reach this one; default: the address of its default route."""
_WATCH_SECONDS: Final = 0.5
_CAUSE_SECONDS: Final = 15.0
"""How long a failed collective waits for its cause: a lost node is known after 8 s."""
_EXIT_SECONDS: Final = 10.0
_CONNECTION_WORDS: Final = ("gloo", "nccl", "tcpstore", "connection", "socket", "timed out", "timeout")


def init(
    nodes: int | tuple[int, int] | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    backend: str | None = None,
    timeout: timedelta | None = None,
) -> World:
    """Join the other nodes and initialise ``torch.distributed``; call it once, first in the script.

    ``nodes``: how many, or the least and the most; default ``$SPOT_TRAINING_NODES``, else one machine.
    ``folder``: a directory that all nodes see, where they meet; default: that of the checkpoints.
    ``backend``, ``timeout``: of ``init_process_group``.

    Start the script on each node alike, by itself or by ``torchrun --standalone --nproc-per-node=…``. If a
    node is lost or leaves, the script runs again from here, in a new child of its process, and `Loop` goes on
    from its newest checkpoint. A node that comes waits for the next save. CUDA must not be used before.
    """
    global _world
    if _world is not ALONE or distributed.is_initialized():
        raise SpotTrainingError("torch.distributed is already initialised; call init() once, before all else")
    if multiprocessing.parent_process() is not None:
        raise SpotTrainingError(
            "init() was called in a process of multiprocessing; start the script with python or torchrun"
        )
    print_errors_in_one_line()
    limits = limits_of(os.environ.get(NODES_VARIABLE, "") if nodes is None else nodes)
    options = {"backend": backend, **({} if timeout is None else {"timeout": timeout})}
    _world = _init_alone(options) if limits is None else _init_nodes(limits, _root(folder), options)
    return _world


def current() -> World:
    """Return the world of `init`; `ALONE` without one."""
    return _world


@dataclass(frozen=True)
class _LocalRanks:
    """The processes of this machine, by the launcher's variables."""

    rank: int
    size: int
    launcher: str
    """Identifies the launcher's run; empty without one."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> _LocalRanks:
        size = int(environment.get("LOCAL_WORLD_SIZE", environment.get("WORLD_SIZE", "1")))
        rank = int(environment.get("LOCAL_RANK", environment.get("RANK", "0")))
        if int(environment.get("WORLD_SIZE", size)) != size:
            raise SpotTrainingError(
                f"WORLD_SIZE is {environment['WORLD_SIZE']} and LOCAL_WORLD_SIZE {size}; start each "
                "node by itself, as torchrun --standalone does: init() joins the nodes"
            )
        return cls(rank, size, environment.get("TORCHELASTIC_RUN_ID", ""))


class World:
    """The processes that train together; see `init`. One of a single machine never changes."""

    has_nodes = False
    """Whether it was formed of nodes that may leave and join."""
    may_change = False
    """Whether another number of ranks may go on."""
    waited_seconds = 0.0
    """How long nodes have waited to join, all together; 0: none waits."""

    def __init__(self, rank: int, size: int, number: int = 0, nodes: tuple[str, ...] = ()) -> None:
        self.rank, self.size, self.number, self.nodes = rank, size, number, nodes
        self.has_notice: Callable[[], bool] = lambda: False
        """Whether this process ends instead of going on in another world."""

    def start(self) -> None:
        """Begin to train: a world that only repeats the end of a training may be too small for it."""

    def renew(self, reason: str) -> None:
        """Go on in the next world, from the newest checkpoint; returns if this process has a notice."""

    def finish(self) -> None:
        """Record that the training has ended: from here on the end of another node is not a loss."""


ALONE: Final = World(0, 1)
"""Without `init`."""
_world = ALONE


def _init_alone(options: Mapping[str, Any]) -> World:
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        distributed.init_process_group(**options)
    else:
        distributed.init_process_group(**options, store=distributed.HashStore(), rank=0, world_size=1)
    return World(distributed.get_rank(), distributed.get_world_size())


def _root(folder: str | os.PathLike[str] | None) -> Path:
    root = str(folder or os.environ.get(FOLDER_VARIABLE) or "checkpoints")
    if "://" in root:
        raise SpotTrainingError(
            f"nodes cannot meet in {root}, which has no locks; use init(folder=…) with a "
            "directory that all see"
        )
    return Path(root).absolute()


def _init_nodes(limits: NodeLimits, root: Path, options: Mapping[str, Any]) -> World:
    local = _LocalRanks.of(os.environ)
    name, token = _node_name(local), uuid.uuid4().hex[:12]
    registry = NodeRegistry(root)
    last_world = mmap.mmap(-1, 8)  # shared with the children
    arguments = [str(root), name, token, str(os.getpid())]
    command = [sys.executable, "-m", "spot_training.nodes.heartbeat", *arguments]
    heartbeat: subprocess.Popen[bytes] | None = None

    def ensure_heartbeat() -> None:
        """Start the process with this node's heartbeat, or again if it has ended."""
        nonlocal heartbeat
        if local.rank == 0 and (heartbeat is None or heartbeat.poll() is not None):
            heartbeat = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603

    process.run_children(ensure_heartbeat)
    if torch.cuda._is_in_bad_fork():
        raise SpotTrainingError("CUDA was used before init(); call init() before all else")
    store: Any = None
    if local.rank == 0:
        address = os.environ.get(ADDRESS_VARIABLE) or _own_address()
        store = distributed.TCPStore(address, 0, is_master=True, wait_for_workers=False)
        node = TrainingNode(name, token, address, store.port, local.size)
        formed = registry.join(limits, node)
    else:
        formed = registry.follow(name, int.from_bytes(last_world[:], "big"))
        token = ""
    last_world[:] = formed.number.to_bytes(8, "big")
    rank = formed.first_rank(name) + local.rank
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(formed.size)}
    os.environ[WORLD_VARIABLE] = str(registry.lease(formed.number))
    first = formed.nodes[0]
    if rank or store is None:
        store = distributed.TCPStore(first.address, first.port, is_master=False, wait_for_workers=False)
    names = tuple(node.name for node in formed.nodes)
    if rank == 0:
        say(f"world {formed.number}: {formed.size} ranks on {len(names)} nodes: {', '.join(names)}")
    store = distributed.PrefixStore(f"world-{formed.number}", store)
    distributed.init_process_group(**options, store=store, rank=rank, world_size=formed.size)
    return _NodesWorld(rank, formed, registry, limits, (name, token))


def _node_name(local: _LocalRanks) -> str:
    if name := os.environ.get(NAME_VARIABLE):
        return name
    if local.size > 1 and not local.launcher:
        raise SpotTrainingError(
            f"{local.size} processes run without torchrun; set ${NAME_VARIABLE} to a name"
        )
    return f"{socket.gethostname()}-{local.launcher or os.getpid()}"


def _own_address() -> str:
    """Return the source address of the default route; no packet is sent (connect(2) of a datagram socket)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # RFC 5737: an address for documentation
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


class _NodesWorld(World):
    """A world of nodes, in one of its processes: it watches it, and goes on in the next."""

    has_nodes = True

    def __init__(
        self, rank: int, world: NodeWorld, registry: NodeRegistry, limits: NodeLimits, node: tuple[str, str]
    ) -> None:
        """``node``: its name and token; empty for its other ranks, which do not change the membership."""
        super().__init__(rank, world.size, world.number, tuple(member.name for member in world.nodes))
        self._registry, self._limits, self._world = registry, limits, world
        self._name, self._token = node
        self.may_change = limits.minimum < limits.maximum
        self._is_finished = threading.Event()
        self._restarting = threading.Lock()
        before_errors.append(self._on_error)
        threading.Thread(target=self._watch, name="spot_training nodes", daemon=True).start()

    def start(self) -> None:
        if self._is_finished.is_set():  # another training of this script
            self._is_finished.clear()
            before_errors.append(self._on_error)
            if self.rank == 0:
                self._registry.update(membership.reopen)
        if len(self._world.nodes) < self._limits.minimum:
            self._registry.update(membership.reopen)
            self.renew("the training goes on")

    def renew(self, reason: str) -> None:
        if self.has_notice():  # the others go on without this node
            self._is_finished.set()
            if self._token:
                reason = f"node {self._name} leaves"
                self._registry.update(partial(membership.remove, token=self._token, reason=reason))
            return
        self._registry.update(partial(membership.end, number=self._world.number, reason=reason))
        self._restart(reason)

    def finish(self) -> None:
        if self._is_finished.is_set():
            return
        self._is_finished.set()
        before_errors.remove(self._on_error)
        if self.rank == 0:
            self._registry.update(partial(membership.finish, number=self._world.number))

    def _watch(self) -> None:
        observed_at = time.monotonic()
        while True:
            time.sleep(_WATCH_SECONDS)
            try:
                now = self._registry.read()
            except (OSError, ValueError):
                continue  # the others decide whether this node is lost
            before, observed_at = observed_at, time.monotonic()
            waiting = len(now.waiting) if now.wants_change else 0
            self.waited_seconds = waiting and self.waited_seconds + waiting * (observed_at - before)
            is_over = now.world is None or now.number != self._world.number
            if is_over and not self._is_finished.is_set():
                self._go_on(now.reason)

    def _go_on(self, reason: str) -> None:
        """Go on in the next world, or end after a notice: the state of a broken world cannot be saved."""
        if not self.has_notice():
            self._restart(reason)
        if not self._is_finished.wait(_EXIT_SECONDS):  # the script may be about to end by itself
            say(f"world {self._world.number} is over: {reason}; this node has a notice and ends")
            sys.stdout.flush()
            os._exit(0)

    def _restart(self, reason: str) -> NoReturn:
        with self._restarting:  # never released: one thread restarts
            say(f"world {self._world.number} is over: {reason}; node {self._name} goes on")
            process.go_on()

    def _on_error(self, error: BaseException) -> None:
        """Wait for the cause of a failed collective: if a node was lost this process goes on."""
        is_over = not self._registry.lease(self._world.number).exists()
        if isinstance(error, Exception) and (is_over or _is_of_connection(error)):
            say(f"a collective failed: {one_line(error)[:200]}")
            end_at = time.monotonic() + _CAUSE_SECONDS
            while time.monotonic() < end_at:
                time.sleep(_WATCH_SECONDS)  # `_watch` ends this process


def _is_of_connection(error: BaseException) -> bool:
    """Return whether an error may be that of a collective whose partner was lost."""
    text = str(error).lower()
    return isinstance(error, (RuntimeError, OSError, SpotTrainingError)) and any(
        word in text for word in _CONNECTION_WORDS
    )
