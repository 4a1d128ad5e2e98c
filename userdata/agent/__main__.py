"""``python -m userdata.agent``."""

import os
import sys

from userdata.agent.cli import main

# They are this interpreter's: a command that the agent starts would import the agent's libraries.
for _name in ("PYTHONPATH", "PYTHONUNBUFFERED"):
    os.environ.pop(_name, None)
sys.exit(main())
