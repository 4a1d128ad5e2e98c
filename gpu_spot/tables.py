"""The DynamoDB tables of a deployed stack, by the physical names that the account lists."""

from __future__ import annotations

import re
from typing import Any, Final

TABLES: Final = ("jobs", "memory", "registry")
"""Names of a stack's tables, without the stack's."""


def deployed_tables(dynamodb: Any, stack: str) -> dict[str, list[str]]:
    """Return the physical names of each of ``TABLES``: one if the stack is deployed, else none.

    They end in a suffix that Pulumi appends (seven hexadecimal digits: its documentation, "Auto-naming").
    Two of a name are there while the second replaces the first.

    Calls: one for each 100 tables of the region; errors are botocore's.
    """
    pattern = re.compile(rf"gpu-spot-{re.escape(stack)}-({'|'.join(TABLES)})(-[0-9a-f]{{7}})?")
    table_names: dict[str, list[str]] = {table: [] for table in TABLES}
    for page in dynamodb.get_paginator("list_tables").paginate():
        for name in page["TableNames"]:
            if match := pattern.fullmatch(name):
                table_names[match[1]].append(name)
    return table_names
