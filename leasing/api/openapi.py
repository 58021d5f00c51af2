"""How the OpenAPI document is made from the models of requests and answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from drf_spectacular.contrib.pydantic import PydanticExtension
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from pydantic import BaseModel

from leasing.api.answers import Problem
from leasing.api.problems import CONTENT_TYPE

F = TypeVar("F", bound=Callable[..., Any])


class BearerToken(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # drf-spectacular has no types
    target_class = "leasing.api.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, _auto_schema: AutoSchema) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}


class PydanticModel(PydanticExtension):  # type: ignore[no-untyped-call]  # drf-spectacular has no types
    """Like its parent, which describes a request by what the model would print: there, defaults look obligatory."""

    target_class = "pydantic.BaseModel"
    match_subclasses = True
    priority = 1

    def map_serializer(self, auto_schema: AutoSchema, direction: str) -> dict[str, Any]:
        schema: dict[str, Any] = self.target.model_json_schema(
            ref_template="#/components/schemas/{model}",
            mode="validation" if direction == "request" else "serialization",
        )
        for name, definition in schema.pop("$defs", {}).items():
            component = ResolvedComponent(name, ResolvedComponent.SCHEMA, definition, object=name)  # type: ignore[no-untyped-call]  # drf-spectacular has no types
            auto_schema.registry.register_on_missing(component)
        return schema


def call(
    operation_id: str,
    *,
    answers: Mapping[int, type[BaseModel] | None],
    problems: Mapping[int, str] | None = None,
    body: type[BaseModel] | None = None,
    query: type[BaseModel] | None = None,
    headers: tuple[OpenApiParameter, ...] = (),
) -> Callable[[F], F]:
    """Describe a call: what it reads and answers, and the problems it may answer with beside those of every call."""
    common = {
        400: "invalid_request",
        401: "unauthenticated",
        403: "forbidden",
        429: "too_many_requests",
        503: "unavailable",
    }
    if body is not None:
        common |= {411: "length_required", 413: "payload_too_large", 415: "unsupported_media_type"}
    responses: dict[Any, Any] = {
        (status, "application/json"): answer for status, answer in answers.items() if answer is not None
    }
    responses |= {status: OpenApiResponse(description="Done.") for status, answer in answers.items() if answer is None}
    codes = {status: [code] for status, code in common.items()}
    for status, code in (problems or {}).items():
        codes.setdefault(status, []).append(code)
    responses |= {
        (status, CONTENT_TYPE): OpenApiResponse(Problem, description=" or ".join(f"`{code}`" for code in those))
        for status, those in codes.items()
    }
    described: Callable[[F], F] = extend_schema(
        operation_id=operation_id,
        request={"application/json": body} if body else None,
        parameters=[*(_parameters(query) if query else ()), *headers],
        responses=responses,
    )
    return described


def _parameters(query: type[BaseModel]) -> list[OpenApiParameter]:
    parameters = []
    for name, schema in query.model_json_schema()["properties"].items():
        shape = {key: value for key, value in schema.items() if key not in ("title", "description", "default")}
        # A parameter may be left out; null is not a value that it can have.
        alternatives = [option for option in shape.pop("anyOf", ()) if option != {"type": "null"}]
        for option in alternatives:
            shape |= option
        shape |= {"default": schema["default"]} if schema.get("default") is not None else {}
        parameters.append(OpenApiParameter(name, shape, description=schema.get("description", "")))
    return parameters
