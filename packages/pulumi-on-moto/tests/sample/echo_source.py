"""The sample's second function: returns its event, or does what the event asks for."""

import boto3


def handler(event, context):
    print("called")  # noqa: T201
    if "raise" in event:
        raise ValueError(event["raise"])
    if "put" in event.get("detail", {}):
        entry = {"Source": "echo", "DetailType": event["detail"]["put"], "Detail": "{}"}
        boto3.client("events").put_events(Entries=[entry])
    return set() if "return" in event else event
