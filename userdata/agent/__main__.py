"""``python -m userdata.agent``."""

import sys

from userdata.agent.cli import main

sys.exit(main())
