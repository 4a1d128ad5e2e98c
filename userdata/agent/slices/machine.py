"""Look at the machine: its GPUs, its CPUs core by core, its memory."""

from __future__ import annotations

from pathlib import Path

from userdata.agent.errors import AgentError
from userdata.agent.host import Host
from userdata.agent.slices.model import Machine


def look(host: Host, *, gpus: bool, root: Path = Path("/")) -> Machine:
    """Return what there is; GPUs are looked for only where somebody wants one (``gpus``).

    Raises:
        AgentError: the driver does not answer, or the kernel's files cannot be read.
    """
    try:
        return Machine(_gpus(host) if gpus else (), _cpus(root), _memory_gib(root))
    except (OSError, ValueError) as error:
        raise AgentError(f"slices: the machine cannot be read: {error}") from None


def _gpus(host: Host) -> tuple[str, ...]:
    """Ask the driver, which lists by PCI address; a GPU that fell off the bus is not among them."""
    said = host.run(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"])
    return tuple(line.strip() for line in said.splitlines() if line.startswith("GPU-"))


def _cpus(root: Path) -> tuple[int, ...]:
    """Return the online CPUs; threads of one core are neighbours, so that most tenants share no core."""
    folder = root / "sys/devices/system/cpu"
    found = []
    for first, _, last in (
        part.partition("-") for part in (folder / "online").read_text().strip().split(",")
    ):
        for cpu in range(int(first), int(last or first) + 1):
            topology = folder / f"cpu{cpu}" / "topology"
            package, core = (
                int((topology / name).read_text()) for name in ("physical_package_id", "core_id")
            )
            found.append((package, core, cpu))
    return tuple(cpu for _, _, cpu in sorted(found))


def _memory_gib(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) // 2**20
    raise ValueError("no MemTotal in /proc/meminfo")
