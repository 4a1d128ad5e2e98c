"""Images by instance family, instance requirements and Spot Fleets work in the local cloud."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apart import in_json
from tests.live import capacities


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return in_json(capacities.seen)


def test_a_type_with_an_image_of_its_own_starts_from_a_template_of_its_own(seen: dict[str, Any]) -> None:
    for side in ("primary", "fallback"):
        assert seen["groups"][f"images-{side}"] == [["g5.xlarge", False], ["p3dn.24xlarge", True]]
    assert seen["images"].count("ami-0123456789abcdef0") == 2
    # Only the primary side leaves its image to the launch.
    assert [image.partition("/")[0] for image in seen["images"] if "/" in image] == ["resolve:ssm:"]


def test_requirements_become_the_types_that_meet_them(seen: dict[str, Any]) -> None:
    # At least 8 vCPUs leave out xlarge, at most 64 GiB leave out the bigger ones and gr6.
    wanted = [["g6.2xlarge", False], ["g6.4xlarge", False]]
    assert seen["groups"]["wanted-primary"] == seen["groups"]["fleet-fallback"] == wanted


def test_a_request_fleet_asks_at_once_and_has_no_group_behind_it(seen: dict[str, Any]) -> None:
    assert seen["fleets"] == {"gpu-spot-dev-batch-primary": 2, "gpu-spot-dev-fleet-primary": 0}
    assert not [name for name in seen["groups"] if name.startswith("batch")]
