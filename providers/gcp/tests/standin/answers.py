"""The shape of Compute Engine's errors."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


class Refused(Exception):
    """The request is answered with an error, and nothing is done."""

    def __init__(self, status: int, reason: str, message: str, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
        self.body: Json = {
            "error": {
                "code": status,
                "message": message,
                "errors": [{"message": message, "domain": "global", "reason": reason}],
            }
        }


def not_found(resource: str) -> Refused:
    return Refused(404, "notFound", f"The resource '{resource}' was not found")


def invalid(field: str, value: object, why: str) -> Refused:
    """Quotes the value, as Compute Engine does."""
    return Refused(400, "invalid", f"Invalid value for field '{field}': '{value}'. {why}")
