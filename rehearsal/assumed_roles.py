"""Clients of a session with a role on moto, which evaluates no conditions: each call is checked here.

Calls of DynamoDB, S3, SSM and EC2 Auto Scaling have the resources and condition keys of their permissions;
other calls are checked for their action only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from botocore.exceptions import ClientError

from gpu_spot.preflight.account import ClientOf
from pulumi_on_moto.policies import AccessRequest, ConditionKeys, allows

_PREFIXES: Final = {"autoscaling": "autoscaling", "dynamodb": "dynamodb", "s3": "s3", "ssm": "ssm"}
_NAMES: Final = re.compile(r"#?\b[a-zA-Z_]\w*\b")
_LIST: Final = "s3:ListBucket"


class RoleClient:
    """A client whose calls the policies of a role must allow; ``context`` are keys of every request."""

    def __init__(
        self, client: Any, documents: Sequence[Mapping[str, Any]], account: str, context: ConditionKeys
    ) -> None:
        self._client, self._documents, self._account = client, documents, account
        self._context = context

    def __getattr__(self, name: str) -> Any:
        """Return an operation that is checked, or another attribute of the client."""
        attribute = getattr(self._client, name)
        if name not in self._client.meta.method_to_api_mapping:
            return attribute
        return lambda **arguments: self._call(name, attribute, arguments)

    def _call(self, name: str, operation: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        service = str(self._client.meta.service_model.signing_name)
        action = _action(service, str(self._client.meta.method_to_api_mapping[name]))
        resource, context = self._described(service, arguments)
        if not self._allows(action, resource, context):
            raise _denied(service, name)
        try:
            return operation(**arguments)
        except ClientError as error:
            # S3 says that an object is missing only to a caller who may list the bucket.
            bucket = resource.partition("/")[0]
            if error.response["Error"]["Code"] == "NoSuchKey" and not self._allows(_LIST, bucket, {}):
                raise _denied(service, name) from None
            raise

    def _allows(self, action: str, resource: str, context: ConditionKeys) -> bool:
        return allows(self._documents, AccessRequest(action, resource, {**self._context, **context}))

    def _described(self, service: str, arguments: Mapping[str, Any]) -> tuple[str, ConditionKeys]:
        """Return the resource of a call and its condition keys."""
        meta = self._client.meta
        arn = f"arn:aws:{service}:{meta.region_name}:{self._account}:"
        if service == "dynamodb":
            requested = arguments.get("RequestItems", {})
            table = arguments.get("TableName") or next(iter(requested), "")
            return f"{arn}table/{table}", _item_context(arguments)
        if service == "s3":
            key = arguments.get("Key", "")
            return f"arn:aws:s3:::{arguments.get('Bucket', '')}" + (f"/{key}" if key else ""), {}
        if service == "ssm":
            return f"{arn}parameter{arguments.get('Name', '')}", {}
        return "*", {}


def role_clients(
    clients: ClientOf, role: str, account: str, context: ConditionKeys | None = None
) -> ClientOf:
    """Return clients with the inline policies that the role named ``role`` has now."""
    iam = clients("iam")
    documents = []
    for name in iam.list_role_policies(RoleName=role)["PolicyNames"]:
        document = iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
        documents.append(json.loads(document) if isinstance(document, str) else document)
    return lambda service: RoleClient(clients(service), documents, account, context or {})


def _action(service: str, operation: str) -> str:
    if service == "s3" and operation.startswith("ListObjects"):
        return _LIST
    return f"{_PREFIXES.get(service, service)}:{operation}"


def _item_context(arguments: Mapping[str, Any]) -> ConditionKeys:
    """Return the condition keys of items: partition keys, and for an update the named attributes."""
    keys = [arguments["Key"]] if "Key" in arguments else []
    keys += [key for request in arguments.get("RequestItems", {}).values() for key in request["Keys"]]
    keys += [arguments["Item"]] if "Item" in arguments else []
    if not keys:
        return {}
    context: dict[str, Sequence[str]] = {
        "dynamodb:LeadingKeys": [str(next(iter(key.values()))["S"]) for key in keys]
    }
    if expression := arguments.get("UpdateExpression"):
        names: Mapping[str, str] = arguments.get("ExpressionAttributeNames", {})
        words = {names.get(word, word) for word in _NAMES.findall(re.sub(r":\w+", "", expression))}
        context["dynamodb:Attributes"] = sorted({*arguments["Key"], *words} - {"SET", "if_not_exists"})
    return context


def _denied(service: str, operation: str) -> ClientError:
    code = "AccessDenied" if service == "s3" else "AccessDeniedException"
    return ClientError(
        {"Error": {"Code": code, "Message": "not authorized to perform the action"}}, operation
    )
