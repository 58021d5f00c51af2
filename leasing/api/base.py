"""How all views of the API read a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any, ClassVar, TypeVar

from pydantic import BaseModel, ValidationError
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser
from rest_framework.request import Request
from rest_framework.views import APIView

from leasing.api.problems import LengthRequired, PayloadTooLarge
from leasing.api.requests import NoQuery
from leasing.errors import InvalidRequest
from leasing.tokens import Scope

MAX_BODY_BYTES = 2**21
"""Holds the largest cloud-init, even where JSON takes six characters for one."""

M = TypeVar("M", bound=BaseModel)


class BoundedJSONParser(JSONParser):
    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        context = dict(parser_context or {})
        if int(context["request"].META.get("CONTENT_LENGTH") or 0) > MAX_BODY_BYTES:
            raise PayloadTooLarge
        try:
            return super().parse(stream, media_type, context)
        except RecursionError:
            raise ParseError("The JSON is nested too deeply.") from None


class View(APIView):
    """Each method needs a scope. Query parameters are refused, unless the view reads them itself."""

    parser_classes = (BoundedJSONParser,)
    metadata_class = None
    scopes: ClassVar[Mapping[str, Scope]] = {}
    reads_query: ClassVar[bool] = False

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if "Transfer-Encoding" in request.headers:
            raise LengthRequired  # Django takes a body of unknown length for none, and would answer as if it were empty
        if not self.reads_query:
            parse_query(request, NoQuery)


class PublicView(View):
    """Answers everybody, and asks nobody who they are."""

    authentication_classes = ()
    permission_classes = ()


def parse_query(request: Request, model: type[M]) -> M:
    """The query parameters. Raises InvalidRequest that names each unknown, repeated or bad one."""
    given = request.query_params
    repeated = [name for name in given if len(given.getlist(name)) > 1]
    if repeated:
        raise InvalidRequest({name: ["is given more than once"] for name in repeated})
    return _validate(model, given.dict(), unknown="is not a parameter of this call")


def parse_body(request: Request, model: type[M]) -> M:
    """The JSON body. Raises InvalidRequest that names each unknown, missing or bad field."""
    return _validate(model, json_object(request), unknown="is not a field of this call")


def json_object(request: Request) -> dict[str, Any]:
    """The JSON body as it came; no body counts as an empty object. Raises InvalidRequest."""
    if not isinstance(request.data, dict):
        raise InvalidRequest({"body": ["must be a JSON object"]})
    return request.data


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
