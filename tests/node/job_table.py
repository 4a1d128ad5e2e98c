"""The job table's one item in memory: DynamoDB's conditional writes, as the shipped lease sends them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError

Value = Mapping[str, str]
Attributes = dict[str, Value]
Call = Callable[[str, Callable[[], Any]], Any]


class JobTable:
    """``update_item`` of one job's item, by the subset of DynamoDB's expressions that the lease speaks."""

    def __init__(self, item: Attributes, call: Call) -> None:
        self._item, self._call = item, call

    def update_item(self, **asked: Any) -> dict[str, Any]:
        update, condition = asked["UpdateExpression"], asked.get("ConditionExpression", "")
        names: dict[str, str] = asked.get("ExpressionAttributeNames", {})
        values: dict[str, Value] = asked.get("ExpressionAttributeValues", {})
        for name, real in names.items():
            update, condition = update.replace(name, real), condition.replace(name, real)

        def effect() -> dict[str, Any]:
            if condition and not any(
                all(_holds(term, self._item, values) for term in terms) for terms in _terms(condition)
            ):
                raise refusal("ConditionalCheckFailedException", "The conditional request failed")
            for change in _changes(update):
                _apply(change, self._item, values)
            return {"Attributes": dict(self._item)}

        answer: dict[str, Any] = self._call(_named(update), effect)
        return answer


def refusal(code: str, message: str = "m") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "UpdateItem")


def no_answer() -> ReadTimeoutError:
    """The write may or may not have been made."""
    return ReadTimeoutError(endpoint_url="dynamodb")


def _named(update: str) -> str:
    if update.startswith("REMOVE"):
        return "release"
    if "ADD " in update:
        return "acquire"
    if "token = " in update:
        return "adopt"
    if "volume = " in update:
        return "commit"
    return "claim" if "writer = " in update else "renew"


@lru_cache
def _terms(condition: str) -> tuple[tuple[str, ...], ...]:
    """Alternatives of conjunctions: the lease needs no parentheses around them."""
    return tuple(tuple(part.strip() for part in one.split(" AND ")) for one in condition.split(" OR "))


def _holds(term: str, item: Attributes, values: Mapping[str, Value]) -> bool:
    if found := re.fullmatch(r"attribute_(not_)?exists\((\w+)\)", term):
        return (found[2] in item) != bool(found[1])
    found = re.fullmatch(r"(\w+) (=|<|<>) (:\w+)", term)
    assert found, f"condition {term!r}: not of the subset that is played"
    one, other = item.get(found[1]), values[found[3]]
    if one is None or found[2] == "<>":
        return found[2] == "<>" and one != other
    return one == other if found[2] == "=" else float(one["N"]) < float(other["N"])


@lru_cache
def _changes(update: str) -> tuple[tuple[str, str], ...]:
    clauses = re.findall(r"(SET|ADD|REMOVE) (.*?)(?= (?:SET|ADD|REMOVE) |$)", update)
    return tuple((verb, part.strip()) for verb, parts in clauses for part in parts.split(","))


def _apply(change: tuple[str, str], item: Attributes, values: Mapping[str, Value]) -> None:
    match change:
        case ("SET", part):
            name, _, value = part.partition(" = ")
            item[name] = values[value]
        case ("ADD", part):
            name, value = part.split()
            item[name] = {"N": str(int(item.get(name, {"N": "0"})["N"]) + int(values[value]["N"]))}
        case (_, name):
            item.pop(name, None)
