"""What drf-spectacular can't find out by itself: our bearer tokens, and that pydantic describes our bodies."""

from __future__ import annotations

from typing import Any

from drf_spectacular.contrib.pydantic import PydanticExtension
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent

REF = "#/components/schemas/{model}"


class BearerToken(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # drf-spectacular has no types
    target_class = "leasing.api.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, _auto_schema: AutoSchema) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}


class PydanticModel(PydanticExtension):  # type: ignore[no-untyped-call]  # drf-spectacular has no types
    """Like its parent, which describes a request by what the model would print: there, defaults look obligatory."""

    target_class = "leasing.api.base.Model"
    match_subclasses = True
    priority = 1

    def map_serializer(self, auto_schema: AutoSchema, direction: str) -> dict[str, Any]:
        mode = "validation" if direction == "request" else "serialization"
        schema: dict[str, Any] = self.target.model_json_schema(ref_template=REF, mode=mode)
        for name, definition in schema.pop("$defs", {}).items():
            component = ResolvedComponent(name, ResolvedComponent.SCHEMA, definition, object=name)  # type: ignore[no-untyped-call]  # drf-spectacular has no types
            auto_schema.registry.register_on_missing(component)
        return schema
