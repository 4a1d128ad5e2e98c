"""Resource types: what is known, what is added, what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pulumi_on_moto import LocalCloudError, ResourceRequest, Spec, register
from pulumi_on_moto.mapping.requirements import expand

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
PROGRAM = """
import pulumi, pulumi_aws as aws
pulumi.export("arn", aws.kinesis.Stream("clicks", shard_count=1).arn)
"""
CALLER = """
from pulumi_on_moto import deploy, load, sandbox
exec(sys.argv[2])
with sandbox("eu-west-1") as clients:
    deployment = deploy(clients, load(sys.argv[1], "dev"))
    [name] = clients("kinesis").list_streams()["StreamNames"]
import json
print(json.dumps([deployment.outputs["arn"], name]))
"""


def test_the_three_lines_of_the_readme_add_a_type(python: Callable[..., str], tmp_path: Path) -> None:
    [lines] = [block for block in re.findall(r"```python\n(.*?)```", README, re.S) if "register(" in block]
    (tmp_path / "Pulumi.yaml").write_text("name: small\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config:\n  aws:region: eu-west-1\n")
    (tmp_path / "__main__.py").write_text(PROGRAM)
    arn, name = json.loads(python(CALLER, tmp_path, lines))
    assert re.fullmatch(r"clicks-[0-9a-f]{7}", name)
    assert arn == f"arn:aws:kinesis:eu-west-1:123456789012:stream/{name}"


def test_what_is_no_type_token_is_refused() -> None:
    with pytest.raises(LocalCloudError, match=r"^type 'Stream' must be a token such as aws:"):
        register("Stream", Spec("kinesis.create_stream", "=StreamName"))


def test_a_requirement_that_is_not_emulated_is_named() -> None:
    draft = ResourceRequest("aws:autoscaling/group:Group", "g", "urn", None, {})  # type: ignore[arg-type]
    wanted = {"instanceRequirements": {"allowedInstanceTypes": ["g5.xlarge"], "localStorage": "required"}}
    with pytest.raises(LocalCloudError, match=r"instanceRequirements\.localStorage is not emulated locally"):
        expand(draft, [wanted])
