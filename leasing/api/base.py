"""How all views of the API read a request."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Never, TypeVar

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from pydantic import BaseModel, ValidationError
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication
from rest_framework.views import APIView

from leasing.api.answers import Answer
from leasing.api.authentication import Caller, TokenAuthentication
from leasing.api.problems import LengthRequired, PayloadTooLarge, exception_handler
from leasing.api.rates import spend
from leasing.api.requests import NoQuery
from leasing.errors import InvalidRequest
from leasing.tokens import Scope

MAX_BODY_BYTES = 2**21
"""Holds the largest cloud-init, even where JSON takes six characters for one."""
JSON = "application/json"

M = TypeVar("M", bound=BaseModel)


class View(APIView):
    """Each method needs a scope. Query parameters are refused, unless the view reads them itself.

    It is the framework's for the sake of the OpenAPI document. Requests it takes its own way: what the framework does
    with each before a view sees it takes longer than the lease that is asked for.
    """

    http_method_names: Sequence[str] = ("get", "head", "post", "put", "delete")
    authentication_classes: Sequence[type[BaseAuthentication]] = (TokenAuthentication,)
    scopes: ClassVar[Mapping[str, Scope]] = {}
    reads_query: ClassVar[bool] = False
    caller: Caller

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            self.admit(request)
            response = self._handler(request.method or "")(request, *args, **kwargs)
        except Exception as error:
            problem = exception_handler(error, {"view": self})
            if problem is None:
                raise
            return problem
        return response

    def admit(self, request: HttpRequest) -> None:
        """Whatever holds for all calls. Raises what `exception_handler` knows."""
        request.get_host()  # raises DisallowedHost; it is middleware that asks elsewhere
        if self.authentication_classes:
            self.caller, _ = TokenAuthentication().authenticate(request)
            self._authorise(request.method or "")
            spend(self.caller, timezone.now())
        if request.META.get("HTTP_ACCEPT", "*/*") != "*/*" and not request.accepts(JSON):
            raise exceptions.NotAcceptable
        if "HTTP_TRANSFER_ENCODING" in request.META:
            raise LengthRequired  # Django takes a body of unknown length for none, and would answer as if it were empty
        if not self.reads_query and request.META.get("QUERY_STRING"):
            parse_query(request, NoQuery)

    def _handler(self, method: str) -> Callable[..., HttpResponse]:
        name = method.lower()
        handler: Callable[..., HttpResponse] | None = getattr(self, name, None)
        if handler is None or name not in self.http_method_names:
            raise exceptions.MethodNotAllowed(method)
        return handler

    def _authorise(self, method: str) -> None:
        needed = self.scopes.get("GET" if method == "HEAD" else method)
        # A method without a scope is one that the view doesn't have: it is told so.
        if needed is not None and needed not in self.caller.scopes:
            raise exceptions.PermissionDenied(f"The token lacks the scope '{needed}'.")


class PublicView(View):
    """Answers everybody, and asks nobody who they are."""

    authentication_classes = ()


def answer(content: Answer, status: int = 200) -> HttpResponse:
    return HttpResponse(content.model_dump_json(by_alias=True), status=status, content_type=JSON)


def parse_query(request: HttpRequest, model: type[M]) -> M:
    """The query parameters. Raises InvalidRequest that names each unknown, repeated or bad one."""
    given = request.GET
    repeated = [name for name in given if len(given.getlist(name)) > 1]
    if repeated:
        raise InvalidRequest({name: ["is given more than once"] for name in repeated})
    return _validate(model, given.dict(), unknown="is not a parameter of this call")


def parse_body(request: HttpRequest, model: type[M]) -> M:
    """The JSON body. Raises InvalidRequest that names each unknown, missing or bad field."""
    return _validate(model, json_object(request), unknown="is not a field of this call")


def json_object(request: HttpRequest) -> dict[str, Any]:
    """The JSON body as it came; no body counts as an empty object.

    Raises InvalidRequest, and errors of the framework for what HTTP has a status for.
    """
    if int(request.META.get("CONTENT_LENGTH") or 0) > MAX_BODY_BYTES:
        raise PayloadTooLarge
    if not request.body:
        return {}
    if request.content_type != JSON:
        raise exceptions.UnsupportedMediaType(request.content_type or "")
    try:
        content = json.loads(request.body.decode(), parse_constant=_refuse_constant, object_pairs_hook=_object)
    except ValueError as error:
        raise InvalidRequest({"body": [f"is not JSON: {error}"]}) from None
    except RecursionError:
        raise InvalidRequest({"body": ["is nested too deeply"]}) from None
    if not isinstance(content, dict):
        raise InvalidRequest({"body": ["must be a JSON object"]})
    return content


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is given more than once in an object")
    return found


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is not a number")


def _validate(model: type[M], given: Mapping[str, Any], *, unknown: str) -> M:
    try:
        return model.model_validate(given)
    except ValidationError as error:
        errors: dict[str, list[str]] = {}
        for problem in error.errors(include_url=False, include_input=False):
            field = ".".join(str(part) for part in problem["loc"]) or "body"
            message = problem["msg"].removeprefix("Value error, ")
            errors.setdefault(field, []).append(unknown if problem["type"] == "extra_forbidden" else message)
        raise InvalidRequest(errors) from None
