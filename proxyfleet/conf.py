"""Every ``PROXYFLEET_*`` variable: typed, frozen, read once. ``manage.py settings`` shows this table."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AnyHttpUrl, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

ENV_PREFIX = "PROXYFLEET_"
_BEARER = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750
_FLEET_ID = re.compile(r"[a-z]([a-z0-9-]{0,14}[a-z0-9])?")


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
        description="Host names that the admin and the API answer to, comma-separated.",
    )
    https: bool = Field(
        default=True,
        description="The admin is reached by HTTPS only: secure cookies, HSTS and a redirect. Off on a laptop.",
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
    discovery_addr: str = Field(
        default=":8090", description="Where the API, the admin and /metrics listen: [host]:port."
    )
    discovery_token: SecretStr | None = Field(default=None, description="Seeds one API token with every scope.")
    worker_concurrency: int = Field(default=8, ge=1, description="Celery processes of one worker.")
    provider_concurrency: int = Field(
        default=4, ge=1, description="Proxies of one provider entry that are reconciled at the same time."
    )
    provision_timeout: float = Field(
        default=900, gt=0, description="A new instance without an address after this long is deleted and made again."
    )
    reconcile_interval: float = Field(
        default=2, gt=0, description="How often the sweep looks for proxies that are due."
    )
    gc_interval: float = Field(default=300, gt=0, description="How often each provider is searched for orphans.")
    gc_min_age: float = Field(
        default=600, ge=0, description="Orphans younger than this, by the provider's own clock, are left alone."
    )
    gc_max_deletes: int = Field(default=20, ge=1, description="Orphans that one sweep of one provider deletes at most.")
    healthcheck_url: AnyHttpUrl = Field(
        default=AnyHttpUrl("https://www.gstatic.com/generate_204"),
        description="Fetched through every proxy whose spec names no URL of its own.",
    )
    probe_ca_file: Path | None = Field(
        default=None,
        description="Certificates that probes trust besides the system's, as PEM: for a target of your own.",
    )
    probe_interval: float = Field(default=1, gt=0, description="How often beat asks which proxies are due for a probe.")
    health_workers: int = Field(default=256, ge=1, description="Probes of one provider that run at the same time.")
    default_lease_ttl: int = Field(default=300, ge=1, description="A lease's time to live when the request names none.")
    max_lease_ttl: int = Field(default=3600, ge=1, description="Longest time to live that a lease can ask for.")
    lease_cooldown: int = Field(default=900, ge=1, description="How long a proxy rests for a target that blocked it.")
    event_retention_days: int = Field(
        default=30, ge=1, description="Events and ended leases older than this are deleted."
    )

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("discovery_token")
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
    lines = [f"{ENV_PREFIX}{str(problem['loc'][0]).upper()}: {problem['msg']}" for problem in error.errors()]
    return "\n".join(lines)
