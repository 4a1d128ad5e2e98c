"""moto's serializer finds the values of members with the speed-up as without it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from moto.core.serialize import AttributePicker, AttributePickerContext, XFormedAttributePicker
from moto.core.utils import get_service_model

from pulumi_on_moto.fixes.speedups.attributes import ATTRIBUTES, _picked

FOUND = AttributePicker.__call__


class Instance:
    """Found by aliases, by names in snake case, without the class's name, and below another object."""

    class Meta:
        serialization_aliases: ClassVar = {"ImageId": "placement.ami"}

    def __init__(self) -> None:
        self.id = "i-1"
        self.instance_type = "g6.xlarge"
        self.placement = {"ami": "ami-1"}


OBJECTS = (Instance(), {"InstanceId": "i-2", "image_id": "ami-2", "tags": []}, {"state": None}, object())


TRANSFORMED = {
    "ImageId": lambda value: [value],
    "Else.VpcId": repr,
    "State.InstanceType": lambda value: [value],
}
PICKERS = (AttributePicker(), XFormedAttributePicker(), XFormedAttributePicker(None, TRANSFORMED))


@pytest.mark.parametrize("picker", PICKERS)
def test_a_member_of_an_object_is_the_one_that_moto_finds(picker: AttributePicker) -> None:
    model = get_service_model("ec2")
    shape: Any = model.shape_for("Instance")
    operation = SimpleNamespace(service_model=model)
    serializer = SimpleNamespace(operation_model=operation, path=["State"], _value_picker=picker)
    _, _, value_of = ATTRIBUTES[1]
    values = set()
    for _ in range(2):  # found, then remembered
        for obj in OBJECTS:
            for key, member in shape.members.items():
                member.parent = shape
                context = AttributePickerContext(obj, key, member, None, model, "State")
                values.add(repr(value := FOUND(picker, context)))
                assert _picked(picker, context) == value, (obj, key)
                assert value_of(serializer, obj, key, member) == value, (obj, key)
    assert {"'i-2'", "None"} <= values
    assert ({"['ami-1']", "['g6.xlarge']"} <= values) == bool(picker.response_transformers)
