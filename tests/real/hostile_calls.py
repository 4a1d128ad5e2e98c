"""System calls of a hostile tenant: run by a Python in its container, it prints what gets its way."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

_NUMBERS: Final = {
    # On x86_64 and on aarch64.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "add_key": (248, 217),
    "open_by_handle_at": (304, 265),
    "perf_event_open": (298, 241),
    "settimeofday": (164, 170),
    "pivot_root": (155, 41),
    "swapon": (167, 224),
    "mount": (165, 40),
}
_REFUSED: Final = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ESRCH)
"""Another error comes after the check of what the caller may do: then the call is open to it."""
_PTRACE_SEIZE: Final = 0x4206
_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWNET: Final = 0x40000000
_SESSION_KEYRING: Final = -3


def _call(name: str, *arguments: object) -> None:
    """Make a system call; raise ``OSError`` if it is refused."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = _NUMBERS[name][platform.machine() == "aarch64"]
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in (number, *arguments)]
    if libc.syscall(*words) < 0 and ctypes.get_errno() in _REFUSED:
        raise OSError(ctypes.get_errno(), name)


def _in_child(act: Callable[[], object]) -> None:
    """Act in a process of its own, which may lose its namespaces."""
    child = os.fork()
    if child == 0:
        try:
            act()
        except OSError:
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise OSError(errno.EPERM, "in a child")


def _of_neighbours(act: Callable[[int], object]) -> None:
    for pid in map(int, sys.argv[1:]):
        try:
            return _in_child(lambda pid=pid: act(pid))  # type: ignore[misc]
        except OSError:
            continue
    raise OSError(errno.ESRCH, "no neighbour")


def _read_memory(pid: int) -> None:
    process = Path(f"/proc/{pid}")
    with (process / "maps").open() as maps, (process / "mem").open("rb", 0) as memory:
        memory.seek(int(maps.readline().partition("-")[0], 16))
        memory.read(16)


def _copy_memory(pid: int) -> None:
    vector = (ctypes.c_void_p * 2)()
    _call("process_vm_readv", pid, ctypes.byref(vector), 1, ctypes.byref(vector), 1, 0)


def _find_neighbour() -> None:
    """Ask Docker's DNS server for the name of a neighbour's container."""
    name = b"".join(bytes([len(part)]) + part for part in (b"gpu-spot-tenant-ada", b""))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(2)
        asking.sendto(b"\0\1\1\0\0\1\0\0\0\0\0\0" + name + b"\0\1\0\1", ("127.0.0.11", 53))
        if asking.recv(512)[6:8] == b"\0\0":
            raise OSError(errno.ENOENT, "no address")


def _find_sockets() -> None:
    """Look for abstract sockets, which belong to a network namespace (CVE-2020-15257)."""
    if "@" not in Path("/proc/net/unix").read_text():
        raise OSError(errno.ENOENT, "no abstract socket")


_ATTRIBUTES: Final = ctypes.create_string_buffer(128)
TRIED: Final[dict[str, Callable[[], object]]] = {
    "attaches to a neighbour's process (ptrace)": lambda: _of_neighbours(
        lambda pid: _call("ptrace", _PTRACE_SEIZE, pid, 0, 0)
    ),
    "reads a neighbour's memory": lambda: _of_neighbours(_read_memory),
    "copies a neighbour's memory": lambda: _of_neighbours(_copy_memory),
    "makes a user namespace": lambda: _in_child(lambda: _call("unshare", _CLONE_NEWUSER)),
    "makes a network namespace": lambda: _in_child(lambda: _call("unshare", _CLONE_NEWNET)),
    "joins a namespace": lambda: _in_child(
        lambda: _call("setns", os.open("/proc/self/ns/uts", os.O_RDONLY), 0)
    ),
    "opens a raw socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close(),
    "opens a raw IPv6 socket": lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58).close(),
    "opens a packet socket": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close(),
    "makes a BPF map": lambda: _call("bpf", 0, _ATTRIBUTES, 128),
    "uses the kernel's keyring": lambda: _call("add_key", b"user", b"x", b"y", 1, _SESSION_KEYRING),
    "opens files by handle": lambda: _call("open_by_handle_at", -1, _ATTRIBUTES, 0),
    "measures the kernel": lambda: _call("perf_event_open", _ATTRIBUTES, 0, -1, -1, 0),
    "sets the clock": lambda: _call("settimeofday", 1, 0),
    "changes its root": lambda: _call("pivot_root", b"/nowhere", b"/nowhere"),
    "swaps to a file": lambda: _call("swapon", b"/nowhere", 0),
    "mounts a directory again": lambda: _call("mount", b"/nowhere", b"/nowhere", b"", 4096, 0),
    "raises its priority": lambda: _in_child(lambda: os.setpriority(os.PRIO_PROCESS, 0, -5)),
    "resolves a neighbour's name": _find_neighbour,
    "sees sockets of the host": _find_sockets,
}


def succeeded(tried: Iterable[str]) -> list[str]:
    """Return those that get their way."""
    open_to_it = []
    for name in tried:
        try:
            TRIED[name]()
        except OSError:
            continue
        open_to_it.append(name)
    return open_to_it


if __name__ == "__main__":
    sys.stdout.write("".join(f"{name}\n" for name in succeeded(TRIED)))
