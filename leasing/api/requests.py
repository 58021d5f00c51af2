"""What callers may send. The OpenAPI document is made from these."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from leasing.models import CLIENT_LENGTH, Result
from leasing.selectors import MAX_LENGTH, Selector
from leasing.targets import normalise_target
from proxyfleet.fleet.phases import Phase
from proxyfleet.fleet.spec import Mode

MAX_COUNT = 100
"""Leases that one call can ask for."""
MAX_EXCLUDED = 100
MAX_COOLDOWN_SECONDS = 30 * 86_400
DEFAULT_PAGE, LARGEST_PAGE = 100, 500


ANY_PROXY: Any = Field(Selector(), json_schema_extra={"default": ""})


class Request(BaseModel):
    """camelCase, and nothing that we don't know."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=False, extra="forbid", frozen=True)


def _read_selector(value: Any) -> Selector:
    if isinstance(value, str):
        return Selector.parse(value)
    if isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
        return Selector.from_map(value)
    raise ValueError("must be a selector, as a string or as a map of strings")


_TEXT_SCHEMA = {
    "type": "string",
    "maxLength": MAX_LENGTH,
    "description": "Kubernetes label-selector syntax over the attributes: `geo=eu,tier in (a,b),!slow`.",
}
_MAP_SCHEMA = {"type": "object", "additionalProperties": {"type": "string"}}
SelectorText = Annotated[Selector, PlainValidator(_read_selector), WithJsonSchema(_TEXT_SCHEMA)]
SelectorOrMap = Annotated[
    Selector, PlainValidator(_read_selector), WithJsonSchema({"anyOf": [_TEXT_SCHEMA, _MAP_SCHEMA]})
]
Target = Annotated[str, AfterValidator(normalise_target)]
Printable = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]*$")]
ProxyID = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,63}/[a-z0-9.-]{1,253}$")]
PhaseName = Annotated[Phase, Field(strict=False), WithJsonSchema({"type": "string", "enum": list(Phase)})]
ModeName = Annotated[Mode, Field(strict=False), WithJsonSchema({"type": "string", "enum": list(Mode)})]
ResultName = Annotated[Result, Field(strict=False), WithJsonSchema({"type": "string", "enum": list(Result)})]
Limit = Annotated[int, Field(ge=1, le=LARGEST_PAGE, description="Items of a page.")]
Cursor = Annotated[str, Field(max_length=2048, description="From the `next` of the page before.")]


def _whole(value: Any) -> Any:
    """JSON has one kind of number: 60.0 is 60."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# The bounds come before: of those that come after, the document would not know.
Whole = BeforeValidator(_whole)
TTL = Annotated[
    int,
    Field(ge=1, description="Seconds to live, cut down to `PROXYFLEET_MAX_LEASE_TTL`; a default, when left out."),
    Whole,
]
Count = Annotated[int, Field(ge=1, le=MAX_COUNT), Whole]
CooldownSeconds = Annotated[int, Field(ge=1, le=MAX_COOLDOWN_SECONDS), Whole]


class Body(Request):
    """JSON has types: a number is not a text, nor a text a number."""

    model_config = ConfigDict(strict=True)


class NoQuery(Request):
    """For calls without parameters."""


class ProxyQuery(Request):
    healthy: bool | None = Field(None, description="Whether the last verdict on the instance of now is healthy.")
    phase: PhaseName | None = None
    mode: ModeName | None = None
    provider: Printable | None = Field(None, max_length=63)
    namespace: Printable | None = Field(None, max_length=63)
    available: bool | None = Field(None, description="Whether it can be leased now.")
    target: Target | None = Field(None, description="Only proxies that are not cooling for this host or URL.")
    selector: SelectorText = ANY_PROXY
    limit: Limit = DEFAULT_PAGE
    cursor: Cursor | None = None


class TargetQuery(Request):
    limit: Limit = DEFAULT_PAGE
    cursor: Cursor | None = None


class LeaseRequest(Body):
    selector: SelectorOrMap = ANY_PROXY
    ttl_seconds: TTL | None = None
    target: Target | None = Field(None, description="The host or URL that it is for; kept as the host in lower case.")
    count: Count | None = Field(
        None, description="Up to so many leases on distinct proxies; the answer then has `items`."
    )
    client: Printable = Field(
        "", max_length=CLIENT_LENGTH, description="What you call yourself, for whoever looks at the leases."
    )
    exclude: tuple[ProxyID, ...] = Field((), strict=False, max_length=MAX_EXCLUDED, description="Proxies not to lease.")


class RenewRequest(Body):
    ttl_seconds: TTL | None = None


class ReportRequest(Body):
    result: ResultName
    target: Target | None = Field(None, description="The target of the lease, when left out.")
    cooldown_seconds: CooldownSeconds | None = Field(
        None, description="How long the proxy rests after `rate_limited` or `blocked`; a default, when left out."
    )
