"""Play three hours of the job without a data volume and print the day as JSON.

A script, because a process holds one deployment.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # bench is no package that is installed

from bench.research import day

if __name__ == "__main__":
    json.dump(asdict(day("research-efs", 1, 3.0)), sys.stdout)
