"""What a browser does with the admin's forms, and what the person in front of it reads."""

from __future__ import annotations

from typing import Any

from django.test import Client


def filled(client: Client, url: str, **changes: Any) -> dict[str, Any]:
    """What a browser would post: the form as it is shown, with some fields changed."""
    form = client.get(url).context["adminform"].form
    shown = {name: form[name].value() for name in form.fields if not form.fields[name].disabled}
    return {name: "" if value is None else value for name, value in (shown | changes).items()}


def errors(response: Any) -> dict[str, list[str]]:
    return {field: list(messages) for field, messages in response.context["errors"].items()}


def told(response: Any) -> list[str]:
    return [str(message) for message in response.context["messages"]]
