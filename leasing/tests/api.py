"""A client of the API that holds every answer against the OpenAPI document."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import jsonschema  # type: ignore[import-untyped]  # ships no types
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.test import Client
from django.test.client import ClientHandler

from leasing.api.handler import respond


@cache
def openapi_document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(
        Client(SERVER_NAME="localhost").get("/v1/schema", headers={"accept": "application/json"}).content
    )
    return document


class _Handler(ClientHandler):
    """As the API is served."""

    def get_response(self, request: HttpRequest) -> HttpResponse:
        response = respond(request)
        request.close()
        return response


def client(**environ: Any) -> Client:
    made = Client(SERVER_NAME="localhost", **environ)
    made.handler = _Handler(enforce_csrf_checks=False)
    return made


class Api:
    """Calls with ``token``, if there is one. An answer that the document doesn't describe fails the test."""

    def __init__(self, token: str = "") -> None:
        self._client = client()
        self._token = token
        self.document = openapi_document()

    def get(self, path: str) -> Answer:
        return self.call("GET", path)

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self.call("POST", path, body, **headers)

    def delete(self, path: str) -> Answer:
        return self.call("DELETE", path)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """``body`` is sent as JSON; bytes as they are. ``headers`` are named as in a WSGI environment."""
        if self._token:
            headers["HTTP_AUTHORIZATION"] = f"Bearer {self._token}"
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        content_type = headers.pop("CONTENT_TYPE", "application/json")
        response = self._client.generic(method, path, content, content_type, **headers)  # type: ignore[arg-type]  # headers by keyword
        answer = Answer(response)
        self._hold_against_document(method, urlsplit(path).path, answer)
        return answer

    def _hold_against_document(self, method: str, path: str, answer: Answer) -> None:
        described = next(
            (
                operations[method.lower()]
                for template, operations in self.document["paths"].items()
                if method.lower() in operations and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path)
            ),
            None,
        )
        if described is None:
            return
        responses = described["responses"]
        assert str(answer.status) in responses, f"{method} {path} answered {answer.status}, which is not described"
        content = responses[str(answer.status)].get("content", {})
        if not content:
            assert answer.content == b""
            return
        assert answer.content_type in content
        schema = content[answer.content_type]["schema"]
        jsonschema.validate(answer.body, {"components": self.document["components"]} | schema)


class Answer:
    def __init__(self, response: HttpResponseBase) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.content: bytes = getattr(response, "content", b"")
        self.content_type = response.headers.get("Content-Type", "").split(";")[0]

    @property
    def body(self) -> Any:
        return json.loads(self.content)

    @property
    def code(self) -> str:
        """Of a problem."""
        assert self.content_type == "application/problem+json", self.content
        assert self.body["status"] == self.status
        return str(self.body["code"])
