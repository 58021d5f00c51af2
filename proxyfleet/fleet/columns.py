"""The columns of a proxy that hold its spec, and the way between them and the spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proxyfleet.fleet.spec import ProxySpec

if TYPE_CHECKING:
    from proxyfleet.fleet.models import Proxy

SPEC_COLUMNS = (
    "mode",
    "provider",
    "zone",
    "machine_type",
    "image",
    "cloud_init_inline",
    "cloud_init_secret_name",
    "cloud_init_secret_key",
    "endpoint_host",
    "credentials_secret_name",
    "port",
    "attributes",
    "max_leases",
    "drain_seconds",
    "health_url",
    "health_interval_seconds",
    "health_timeout_seconds",
    "failure_threshold",
    "success_threshold",
    "expected_status",
)


def read_spec(proxy: Proxy) -> ProxySpec:
    """The declared spec, built from the columns."""
    return ProxySpec.parse(read_declared(proxy))


def read_declared(proxy: Proxy) -> dict[str, Any]:
    """The same as an operator writes it, whether or not it is valid by the rules of now."""
    declared: dict[str, Any] = {
        "mode": proxy.mode,
        "provider": proxy.provider,
        "placement": {"zone": proxy.zone, "machineType": proxy.machine_type, "image": proxy.image},
        "port": proxy.port,
        "attributes": proxy.attributes,
        "maxLeases": proxy.max_leases,
        "drainSeconds": proxy.drain_seconds,
        "healthCheck": {
            "url": proxy.health_url or None,
            "intervalSeconds": proxy.health_interval_seconds,
            "timeoutSeconds": proxy.health_timeout_seconds,
            "failureThreshold": proxy.failure_threshold,
            "successThreshold": proxy.success_threshold,
            "expectedStatus": proxy.expected_status,
        },
    }
    if proxy.cloud_init_inline is not None:
        declared["cloudInit"] = {"inline": proxy.cloud_init_inline}
    elif proxy.cloud_init_secret_name:
        declared["cloudInit"] = {
            "secretRef": {"name": proxy.cloud_init_secret_name, "key": proxy.cloud_init_secret_key}
        }
    if proxy.endpoint_host:
        declared["endpoint"] = {"host": proxy.endpoint_host}
        if proxy.credentials_secret_name:
            declared["endpoint"]["credentialsSecretRef"] = {"name": proxy.credentials_secret_name}
    return declared


def holds_spec(proxy: Proxy, spec: ProxySpec) -> bool:
    """Whether the columns are those of ``spec``."""
    fresh = type(proxy)()
    write_spec(fresh, spec)
    return all(getattr(proxy, column) == getattr(fresh, column) for column in SPEC_COLUMNS)


def write_spec(proxy: Proxy, spec: ProxySpec) -> None:
    """Set the columns; saves nothing."""
    secret = spec.cloud_init.secret_ref
    credentials = spec.endpoint.credentials_secret_ref if spec.endpoint else None
    proxy.mode = spec.mode.value
    proxy.provider = spec.provider
    proxy.zone = spec.placement.zone
    proxy.machine_type = spec.placement.machine_type
    proxy.image = spec.placement.image
    proxy.cloud_init_inline = spec.cloud_init.inline
    proxy.cloud_init_secret_name = secret.name if secret else ""
    proxy.cloud_init_secret_key = secret.key if secret else ""
    proxy.endpoint_host = spec.endpoint.host if spec.endpoint else ""
    proxy.credentials_secret_name = credentials.name if credentials else ""
    proxy.port = spec.port
    proxy.attributes = dict(spec.attributes)
    proxy.max_leases = spec.max_leases
    proxy.drain_seconds = spec.drain_seconds
    proxy.health_url = spec.health_check.url or ""
    proxy.health_interval_seconds = spec.health_check.interval_seconds
    proxy.health_timeout_seconds = spec.health_check.timeout_seconds
    proxy.failure_threshold = spec.health_check.failure_threshold
    proxy.success_threshold = spec.health_check.success_threshold
    proxy.expected_status = list(spec.health_check.expected_status)
