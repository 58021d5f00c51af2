"""Every ``PROXYFLEET_*`` variable: typed, frozen, read once. ``manage.py settings`` shows this table."""

from __future__ import annotations

import re
import ssl
from functools import cache
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import (
    AnyHttpUrl,
    Field,
    FilePath,
    IPvAnyNetwork,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from providers.config import ProvidersConfigError, load_providers_config

ENV_PREFIX = "PROXYFLEET_"
_BEARER = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750
_FLEET_ID = re.compile(r"[a-z]([a-z0-9-]{0,14}[a-z0-9])?")
_DATABASES = ("postgresql", "postgres")
_BROKERS = ("redis", "rediss", "redis+socket", "sentinel", "amqp", "amqps")
_YEAR = 366 * 86_400

LONGEST_DEFAULT_CHECK = 15.0

Duration = Annotated[float, Field(gt=0, le=_YEAR)]
Interval = Annotated[float, Field(ge=0.1, le=86_400)]
Namespace = Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
WholeDuration = Annotated[int, Field(ge=1, le=_YEAR)]


class ImproperEnvironment(Exception):
    """A ``PROXYFLEET_*`` variable is missing or has a bad value; the message names each one."""


class Settings(BaseSettings):
    """The product's settings. Durations are in seconds unless the name says otherwise."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, env_ignore_empty=True, frozen=True, extra="ignore")

    database_url: SecretStr = Field(
        description="PostgreSQL to keep everything in, as postgres://user:password@host/name."
    )
    broker_url: SecretStr = Field(description="Celery's broker: redis://, redis+socket:// or amqp://.")
    secret_key: SecretStr = Field(
        min_length=32, description="Signs sessions and cursors; at least 32 characters, secret."
    )
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("localhost", "127.0.0.1", "[::1]"),
        min_length=1,
        description="Host names that the admin and the API answer to, comma-separated.",
    )
    https: bool = Field(
        default=True,
        description="The admin is reached by HTTPS only: secure cookies, HSTS and a redirect. Off on a laptop.",
    )
    trusted_proxies: Annotated[tuple[IPvAnyNetwork, ...], NoDecode] = Field(
        default=(),
        description="Networks of your own proxies before the web processes, comma-separated: X-Forwarded-For is "
        "believed of these alone. None: it is not read, and the throttle of sign-in takes all who come through a proxy "
        "for one.",
    )
    fleet_id: str = Field(
        default="proxyfleet",
        description="Marks every instance as this fleet's; installations that share a backend need different ids. "
        "At most 16 of [a-z0-9-].",
    )
    providers_config: Path | None = Field(
        default=None, description="The providers file; none means External proxies only."
    )
    state_dir: Path = Field(
        default=Path("var"), description="Where this machine keeps state: the process provider's instances."
    )
    alive_file: Path | None = Field(
        default=None,
        description="Touched every few seconds by a worker or beat whose loop turns: for the liveness probe of a "
        "container. A worker without a broker removes it. None means no file.",
    )
    discovery_addr: str = Field(
        default=":8090", description="Where the API, the admin and /metrics listen: [host]:port."
    )
    discovery_token: SecretStr | None = Field(default=None, description="Seeds one API token with every scope.")
    worker_concurrency: int = Field(default=8, ge=1, le=1_000, description="Celery processes of one worker.")
    provider_concurrency: int = Field(
        default=4, ge=1, le=1_000, description="Proxies of one provider entry that are reconciled at the same time."
    )
    provision_timeout: Duration = Field(
        default=900, description="A new instance without an address after this long is deleted and made again."
    )
    reconcile_interval: Interval = Field(default=2, description="How often the sweep looks for proxies that are due.")
    gc_interval: Interval = Field(default=300, description="How often each provider is searched for orphans.")
    gc_min_age: float = Field(
        default=600,
        ge=0,
        le=_YEAR,
        description="Orphans younger than this, by the provider's own clock, are left alone.",
    )
    gc_max_deletes: int = Field(
        default=20, ge=1, le=100_000, description="Orphans that one sweep of one provider deletes at most."
    )
    gc_allow_namespaced: bool = Field(
        default=False,
        description="Search for orphans even while the bridge watches one namespace: this fleet has no proxies in any "
        "other.",
    )
    cluster_sync: bool = Field(
        default=False,
        description="Mirror the Proxy objects of a Kubernetes cluster, reached as a ServiceAccount or by KUBECONFIG.",
    )
    proxy_namespace: Namespace | None = Field(
        default=None, description="The only namespace whose Proxy objects are mirrored; none means all."
    )
    lease_namespace: Namespace | None = Field(
        default=None,
        description="Where the bridges keep the Lease of the one that leads; none means the pod's own, else default.",
    )
    sync_addr: str = Field(default=":8091", description="Where a bridge answers /healthz and /readyz: [host]:port.")
    healthcheck_url: AnyHttpUrl = Field(
        default=AnyHttpUrl("https://www.gstatic.com/generate_204"),
        description="Fetched through every proxy whose spec names no URL of its own.",
    )
    probe_ca_file: FilePath | None = Field(
        default=None,
        description="Certificates that probes trust besides the system's, as PEM: for a target of your own.",
    )
    refuse_private_addresses: bool = Field(
        default=False,
        description="External hosts and probe URLs must be public: those who may declare proxies can't look into the "
        "private network. Link-local and cloud-metadata addresses are refused in any case.",
    )
    probe_interval: Interval = Field(default=1, description="How often beat asks which proxies are due for a probe.")
    health_workers: int = Field(
        default=256,
        ge=1,
        le=65_536,
        description="Probes of one provider that are begun or answered at the same time; sixteen times as many wait "
        "for proxies that are silent, if the limit on open files allows.",
    )
    provider_check_interval: Interval = Field(
        default=60, description="How often the backend of each provider entry is checked."
    )
    provider_check_timeout: Duration | None = Field(
        default=None,
        description="A check without an answer after this long is given up; 15 s or the interval, when left out.",
    )
    default_lease_ttl: WholeDuration = Field(
        default=300, description="A lease's time to live when the request names none."
    )
    max_lease_ttl: WholeDuration = Field(default=3600, description="Longest time to live that a lease can ask for.")
    lease_cooldown: WholeDuration = Field(
        default=900, description="How long a proxy rests for a target that blocked it."
    )
    token_rate_limit: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Requests a second that a token may make of each web process, where it has no limit of its own; "
        "empty: as many as it likes.",
    )
    flower_url: AnyHttpUrl | None = Field(
        default=None, description="Where people reach Flower, which the dashboard then links to."
    )
    log_format: Annotated[str, Field(pattern=r"^(json|text)$")] = Field(
        default="json", description="json: one object a line; text: for a person. `make run` on a terminal writes text."
    )
    log_level: Annotated[str, Field(pattern=r"^(DEBUG|INFO|WARNING|ERROR)$")] = Field(
        default="INFO", description="DEBUG, INFO, WARNING or ERROR: what is less grave is not logged."
    )
    metrics_addr: str | None = Field(
        default=None,
        description="Where a worker or beat answers /metrics: [host]:port; none: nowhere. The web process and the "
        "bridge answer at the addresses that they have.",
    )
    metrics_dir: Path | None = Field(
        default=None,
        description="Where processes count what they do; those that share it are one target for Prometheus. None: a "
        "folder of the machine's (or container's) temporary files. Must be local, and is emptied at a start of all.",
    )
    metrics_token: SecretStr | None = Field(
        default=None, description="What Prometheus must send as a bearer token to see /metrics; none: anyone may look."
    )
    trace_health_probes: bool = Field(
        default=False, description="Where traces are sent, also trace every probe: many, and seldom of interest."
    )
    event_retention_days: int = Field(
        default=30, ge=1, le=36_600, description="Events and ended leases older than this are deleted."
    )

    @property
    def check_timeout(self) -> float:
        """Seconds that one check of a provider entry may take."""
        return self.provider_check_timeout or min(LONGEST_DEFAULT_CHECK, self.provider_check_interval)

    @field_validator("database_url")
    @classmethod
    def _postgresql(cls, value: SecretStr) -> SecretStr:
        return _url_of(value, _DATABASES)

    @field_validator("broker_url")
    @classmethod
    def _broker(cls, value: SecretStr) -> SecretStr:
        return _url_of(value, _BROKERS)

    @field_validator("allowed_hosts", "trusted_proxies", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("providers_config")
    @classmethod
    def _usable(cls, value: Path | None) -> Path | None:
        try:
            load_providers_config(value)
        except ProvidersConfigError as error:
            raise ValueError(str(error)) from None
        return value

    @field_validator("healthcheck_url")
    @classmethod
    def _probeable(cls, value: AnyHttpUrl) -> AnyHttpUrl:
        if value.username or value.password:
            raise ValueError("must not carry a user name or password: it is shown to everyone who may look")
        return value

    @field_validator("provider_check_timeout")
    @classmethod
    def _before_the_next(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None and value > info.data.get("provider_check_interval", value):
            raise ValueError(f"must not be longer than {ENV_PREFIX}PROVIDER_CHECK_INTERVAL")
        return value

    @field_validator("probe_ca_file")
    @classmethod
    def _certificates(cls, value: Path | None) -> Path | None:
        if value is not None:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(value)
            except OSError:  # of which ssl's errors are a kind
                raise ValueError("is not a readable PEM file of certificates") from None
        return value

    @field_validator("discovery_token", "metrics_token")
    @classmethod
    def _sendable(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _BEARER.fullmatch(value.get_secret_value()):
            raise ValueError("must be letters, digits and -._~+/, as the Authorization header carries nothing else")
        return value

    @field_validator("fleet_id")
    @classmethod
    def _addressable(cls, value: str) -> str:
        if not _FLEET_ID.fullmatch(value):
            raise ValueError("must be 1 to 16 of [a-z0-9-], start with a letter and not end with a dash")
        return value


def _url_of(value: SecretStr, schemes: tuple[str, ...]) -> SecretStr:
    """``value``, if it can be read as a URL of one of ``schemes``. Raises ValueError, without the value in it."""
    try:
        parts = urlsplit(value.get_secret_value())
        _ = parts.port
    except ValueError:
        raise ValueError("is not a URL; user name and password must be percent-encoded") from None
    if parts.scheme not in schemes:
        raise ValueError(f"must begin with {', '.join(f'{scheme}://' for scheme in schemes)}")
    return value


@cache
def settings() -> Settings:
    """The settings of this process.

    Raises ImproperEnvironment with one line for each variable that is missing or wrong.
    """
    try:
        return Settings()  # type: ignore[call-arg]  # the required values come from the environment
    except ValidationError as error:
        raise ImproperEnvironment(_explain(error)) from None


def _explain(error: ValidationError) -> str:
    """One line a variable; never the value, which may be a secret."""
    lines = [
        f"{ENV_PREFIX}{str(problem['loc'][0]).upper()}: {problem['msg'].removeprefix('Value error, ')}"
        for problem in error.errors()
    ]
    return "\n".join(lines)
