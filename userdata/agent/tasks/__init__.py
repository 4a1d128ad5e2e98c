"""The agent's subcommands: each is a function of the `Node`, which wires its parts together and runs them.

Most imports are local to the functions: `watch` and `metrics` do not need them.
"""

from userdata.agent.tasks.holding import volume
from userdata.agent.tasks.machine import doctor, efs, hook, metrics, watch
from userdata.agent.tasks.node import Node
from userdata.agent.tasks.service import prepare, proxy, work
from userdata.agent.tasks.shared_host import shared_host
from userdata.agent.tasks.training import run

__all__ = [
    "Node",
    "doctor",
    "efs",
    "hook",
    "metrics",
    "prepare",
    "proxy",
    "run",
    "shared_host",
    "volume",
    "watch",
    "work",
]
