"""List the resources of a Pulumi program with the SDK's mocks, without an engine, AWS or moto.

Example::

    from pulumi_declared.declaring import declared
    from pulumi_declared.stackfile import load

    stack = load("shop", "dev")  # shop/Pulumi.yaml, shop/Pulumi.dev.yaml
    for one in declared(stack, {"aws:index/getRegion:getRegion": lambda args: {"region": stack.region}}):
        print(one.type, one.name, one.inputs)
"""
