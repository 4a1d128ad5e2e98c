"""The metric agent on a real GPU, compared with nvidia-smi, with two processes distinguished.

Needs Python 3.11+, nvidia-ml-py and a driver; no CUDA toolkit: ``python3 -m tests.node.gpu_check``.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.waiting import run_process
from userdata.agent.metrics.gpus import Gpus
from userdata.agent.metrics.owner import Owners

MIB = 2**20
# Holds some memory and keeps the GPU busy by setting it, over and over, until its standard input ends.
LOAD = """
import ctypes, sys, threading
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name}: CUDA error {code}")
size = int(sys.argv[1])
device, context, pointer = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
print("up", flush=True)
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
while not ended.is_set():
    for _ in range(50):
        call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(1), ctypes.c_size_t(size))
    call("cuCtxSynchronize")
"""


def has_gpu() -> bool:
    """Tell whether nvidia-smi is here and sees a GPU."""
    smi = shutil.which("nvidia-smi")
    return smi is not None and "GPU" in run_process([smi, "-L"]).stdout


def smi(query: str) -> list[list[str]]:
    argv = ["nvidia-smi", f"--query-{query}", "--format=csv,noheader,nounits"]
    text = run_process(argv, check=True).stdout
    return [[field.strip() for field in line.split(",")] for line in text.splitlines()]


def check() -> dict[str, Any]:
    """Run two processes, compare; raises AssertionError. Returns what was seen."""
    import time

    import pynvml

    gpus = Gpus(pynvml)
    base = gpus.sample()
    listed = [row[0] for row in smi("gpu=uuid")]
    assert [g.uuid for g in base.gpus] == listed, f"{[g.uuid for g in base.gpus]} against {listed}"
    assert base.lost == 0
    sizes = {0: 512 * MIB, 1: 2048 * MIB}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    loads = {s: subprocess.Popen([sys.executable, "-c", LOAD, str(n)], **pipes) for s, n in sizes.items()}
    try:
        for load in loads.values():
            assert load.stdout.readline() == "up\n", "a load did not start"
        time.sleep(4)
        seen = {p.pid: p for g in gpus.sample().gpus for p in g.processes}
        used_by_pid = {
            int(pid): float(used) for pid, used in smi("compute-apps=pid,used_memory") if used.isdigit()
        }
        with tempfile.TemporaryDirectory() as directory:
            workers = Path(directory) / "workers"
            workers.mkdir()
            for slot, load in loads.items():
                (workers / f"{slot}.json").write_text(json.dumps({"slot": slot, "pid": load.pid}))
            slots = {pid: Owners(Path(directory)).slot_of(pid) for pid in seen}
    finally:
        for load in loads.values():
            load.communicate()
    own_pids = {load.pid for load in loads.values()}
    report = {
        "uuids": listed,
        "ecc": [g.ecc_uncorrected for g in base.gpus],
        "agent": {p.pid: [p.memory_mib, p.utilization, slots[p.pid]] for p in seen.values()},
        "nvidia_smi": used_by_pid,
        "host_pids": own_pids <= set(seen),
    }
    assert set(used_by_pid) <= set(seen), report
    for pid, used in used_by_pid.items():
        assert abs((seen[pid].memory_mib or 0) - used) <= 1, report
    # In a container NVML tells the host's process ids: then the slots cannot be resolved, only distinguished.
    if report["host_pids"]:
        assert {slots[load.pid] for load in loads.values()} == {"0", "1"}, report
        memory = {slot: seen[load.pid].memory_mib or 0 for slot, load in loads.items()}
        assert memory[1] - memory[0] == (sizes[1] - sizes[0]) / MIB, report
    assert len(seen) >= 2, report
    assert any(p.utilization > 0 for p in seen.values()), report
    return report


if __name__ == "__main__":
    if not has_gpu():
        sys.exit("no GPU here: nvidia-smi is missing or lists none")
    sys.stdout.write(json.dumps(check()) + "\n")
