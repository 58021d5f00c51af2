"""What an operator may declare: the one validator for the admin, REST and custom resources.

Field names and rules are those of the `Proxy` resource. Errors name a field by its path, as
``healthCheck.timeoutSeconds``.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import (
    AnyHttpUrl,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

MAX_ATTRIBUTES = 32
MAX_CLOUD_INIT_BYTES = 262_144
"""The narrowest backend's limit: a GCE metadata value."""

MAX_PROBE_SECONDS = 120
"""A proxy that never answers holds a place in its provider's batch for this long."""

MAX_PROBE_INTERVAL_SECONDS = 86_400

_DNS_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*")
_HOST = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?)*"
)
# A mistyped IPv4 address, which a resolver may read in its own way: 127.1, 0x7f.1, 2130706433.
_NUMERIC_HOST = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*", re.IGNORECASE)
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_ATTRIBUTE_KEY = re.compile(rf"(?:(?=[^/]{{1,253}}/){_DNS_LABEL}(\.{_DNS_LABEL})*/)?{_LABEL}")
_ATTRIBUTE_VALUE = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{0,63}")
_METADATA_ADDRESSES = frozenset({ipaddress.ip_address("fd00:ec2::254"), ipaddress.ip_address("100.100.100.200")})
_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052
_HTTP_URL = TypeAdapter(AnyHttpUrl)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Mode(StrEnum):
    MANAGED = "Managed"
    """Made by a provider of ours."""
    EXTERNAL = "External"
    """Exists elsewhere; only tracked, probed and leased."""


class InvalidSpec(Exception):
    """A declaration breaks the rules. ``errors`` maps the path of each field to its messages."""

    def __init__(self, errors: Mapping[str, list[str]]) -> None:
        self.errors = dict(errors)
        super().__init__(
            "; ".join(f"{path}: {message}" for path, messages in self.errors.items() for message in messages)
        )


class _Part(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        validate_by_name=True,
        validate_by_alias=True,
        strict=True,
    )

    @field_validator("*")
    @classmethod
    def _storable(cls, value: Any) -> Any:
        if isinstance(value, str) and "\x00" in value:
            raise ValueError("must not hold a NUL character, which PostgreSQL can't keep")
        return value


class PlacementSpec(_Part):
    zone: str = Field(default="", max_length=253)
    machine_type: str = Field(default="", max_length=253)
    image: str = Field(default="", max_length=2048)


class SecretKeyRef(_Part):
    name: str = Field(max_length=253)
    key: str = Field(default="user-data", min_length=1, max_length=253)

    @field_validator("name")
    @classmethod
    def _named_like_an_object(cls, value: str) -> str:
        return _object_name(value)


class SecretRef(_Part):
    name: str = Field(max_length=253)

    @field_validator("name")
    @classmethod
    def _named_like_an_object(cls, value: str) -> str:
        return _object_name(value)


class CloudInitSpec(_Part):
    inline: str | None = Field(default=None, repr=False)
    secret_ref: SecretKeyRef | None = None

    @field_validator("inline")
    @classmethod
    def _fits_every_backend(cls, value: str | None) -> str | None:
        if value is not None and len(value.encode()) > MAX_CLOUD_INIT_BYTES:
            raise ValueError(f"is larger than {MAX_CLOUD_INIT_BYTES} bytes")
        return value

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.inline is not None and self.secret_ref is not None:
            raise ValueError("give inline or secretRef, not both")
        return self


class EndpointSpec(_Part):
    host: str
    credentials_secret_ref: SecretRef | None = None

    @field_validator("host")
    @classmethod
    def _connectable(cls, value: str) -> str:
        return check_host(value)


class HealthCheckSpec(_Part):
    url: str | None = Field(default=None, max_length=2048)
    interval_seconds: int = Field(default=30, ge=1, le=MAX_PROBE_INTERVAL_SECONDS)
    timeout_seconds: int = Field(default=10, ge=1, le=MAX_PROBE_SECONDS)
    failure_threshold: int = Field(default=3, ge=1, le=1_000)
    success_threshold: int = Field(default=1, ge=1, le=1_000)
    expected_status: tuple[Annotated[int, Field(ge=100, le=599)], ...] = Field(default=(), strict=False, max_length=64)

    @field_validator("url")
    @classmethod
    def _http(cls, value: str | None) -> str | None:
        return check_probe_url(value) if value else None

    @model_validator(mode="after")
    def _probes_do_not_overlap(self) -> Self:
        if self.timeout_seconds > self.interval_seconds:
            raise ValueError(f"timeoutSeconds: must not be greater than intervalSeconds, {self.interval_seconds}")
        return self


class ProxySpec(_Part):
    """The spec of a proxy, as an operator writes it."""

    mode: Mode = Field(default=Mode.MANAGED, strict=False)
    provider: str = Field(default="", max_length=63)
    placement: PlacementSpec = PlacementSpec()
    cloud_init: CloudInitSpec = CloudInitSpec()
    endpoint: EndpointSpec | None = None
    port: int = Field(default=3128, ge=1, le=65_535)
    attributes: dict[str, str] = Field(default_factory=dict, max_length=MAX_ATTRIBUTES)
    max_leases: int = Field(default=10, ge=1, le=1_000_000)
    drain_seconds: int = Field(default=0, ge=0, le=604_800)
    health_check: HealthCheckSpec = HealthCheckSpec()

    @field_validator("attributes")
    @classmethod
    def _selectable(cls, value: dict[str, str]) -> dict[str, str]:
        for key, text in value.items():
            if not _ATTRIBUTE_KEY.fullmatch(key):
                raise ValueError(
                    f"the key {key!r} is not a label key: at most 63 letters, digits, '-', '_' and '.', "
                    "with an optional DNS prefix and '/'"
                )
            if not _ATTRIBUTE_VALUE.fullmatch(text):
                raise ValueError(f"the value of {key!r} must be at most 63 characters and hold no control characters")
        return value

    @model_validator(mode="after")
    def _mode_and_its_fields_agree(self) -> Self:
        if self.mode is Mode.MANAGED:
            if not self.provider:
                raise ValueError("provider: a Managed proxy needs one: the name of an entry of the providers file")
            if self.endpoint is not None:
                raise ValueError("endpoint: only an External proxy has one")
        else:
            if self.endpoint is None:
                raise ValueError("endpoint.host: an External proxy needs one")
            for field, is_set in (
                ("provider", bool(self.provider)),
                ("placement", self.placement != PlacementSpec()),
                ("cloudInit", self.cloud_init != CloudInitSpec()),
            ):
                if is_set:
                    raise ValueError(f"{field}: only a Managed proxy has one")
        return self

    @classmethod
    def parse(cls, declared: Mapping[str, Any]) -> ProxySpec:
        """The spec in ``declared``. Raises InvalidSpec that names every field that is wrong."""
        try:
            return cls.model_validate(declared)
        except ValidationError as error:
            raise InvalidSpec(_by_field(error)) from None

    def declared(self) -> dict[str, Any]:
        """The spec as an operator would write it: camelCase, defaults written out, unset parts left away."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def check_identity(namespace: str, name: str) -> None:
    """Namespace and name follow the rules of Kubernetes objects. Raises InvalidSpec."""
    errors: dict[str, list[str]] = {}
    if not re.fullmatch(_DNS_LABEL, namespace):
        errors["namespace"] = ["must be at most 63 of [a-z0-9-], starting and ending with a letter or digit"]
    try:
        _object_name(name)
    except ValueError as error:
        errors["name"] = [str(error)]
    if errors:
        raise InvalidSpec(errors)


def check_host(value: str) -> str:
    """An IPv4 or IPv6 address or a DNS name that is not a link-local or cloud-metadata address."""
    text = value.strip("[]") if value.startswith("[") and value.endswith("]") else value
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        if not _HOST.fullmatch(value) or _NUMERIC_HOST.fullmatch(value):
            raise ValueError("must be an IPv4 address, an IPv6 address or a DNS name") from None
        return value.lower()
    if getattr(address, "scope_id", None):
        raise ValueError("must not have a scope: it means something on one machine only")
    _check_address(address)
    return str(address)


def check_probe_url(value: str) -> str:
    """A URL that probes may fetch: http(s), without credentials, and not on a link-local or metadata address."""
    if not value.isprintable() or " " in value:
        raise ValueError("must not hold spaces or control characters")
    url = _HTTP_URL.validate_python(value)
    if url.username or url.password:
        raise ValueError("must not carry a user name or password: it is shown to everyone who may look")
    try:
        # Taken from the parsed URL, in which 0xa9fea9fe has become 169.254.169.254.
        address = ipaddress.ip_address((url.host or "").strip("[]"))
    except ValueError:
        return value
    _check_address(address)
    return value


def private_fields(spec: ProxySpec) -> list[str]:
    """The fields in which ``spec`` names an address that is not public: private, loopback, shared or reserved.

    Names are not resolved here: that of an External proxy is judged whenever it is connected to, and that of a probe
    URL is the proxy's to resolve.
    """
    hosts = {
        "endpoint.host": spec.endpoint.host if spec.endpoint else "",
        "healthCheck.url": _HTTP_URL.validate_python(spec.health_check.url).host or "" if spec.health_check.url else "",
    }
    return [field for field, host in hosts.items() if _is_private(host)]


def _is_private(host: str) -> bool:
    try:
        return not is_public(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def is_public(address: Address) -> bool:
    """Can it be anywhere in the internet?"""
    return _embedded(address).is_global


def is_never_probed(address: Address) -> bool:
    """Link-local and cloud-metadata addresses: on them a machine tells its secrets to whoever asks."""
    meant = _embedded(address)
    return meant.is_link_local or meant in _METADATA_ADDRESSES


def _embedded(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, if it does: mapped, or behind NAT64."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def _check_address(address: Address) -> None:
    if is_never_probed(address):
        raise ValueError("is a link-local or cloud-metadata address, which is never probed")
    mapped = _embedded(address)
    if mapped.is_unspecified or mapped.is_multicast:
        raise ValueError("is not an address that one can connect to")


def _object_name(value: str) -> str:
    if len(value) > 253 or not _NAME.fullmatch(value):
        raise ValueError("must be at most 253 of [a-z0-9.-], each part starting and ending with a letter or digit")
    return value


def _by_field(error: ValidationError) -> dict[str, list[str]]:
    errors: dict[str, list[str]] = {}
    for problem in error.errors(include_url=False, include_input=False):
        path = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "value_error" and (found := re.match(r"([a-zA-Z]+(?:\.[a-zA-Z]+)*): (.*)", message)):
            # A rule between fields names the field itself.
            path, message = ".".join(filter(None, (path, found[1]))), found[2]
        if problem["type"] == "extra_forbidden":
            message = "is not a field of a proxy"
        errors.setdefault(path or "spec", []).append(message)
    return errors
