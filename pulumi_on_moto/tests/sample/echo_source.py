"""The sample's second function: returns its event, or does what the event asks for."""


def handler(event, context):
    print("called")  # noqa: T201
    if "raise" in event:
        raise ValueError(event["raise"])
    return set() if "return" in event else event
