"""A value that would break something later stops the start, by the name of its variable and without the value."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxyfleet.conf import ENV_PREFIX, ImproperEnvironment, Settings, settings

PASSWORD = "s3cret"


@pytest.fixture(autouse=True)
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test reads the environment anew, past what the process has read."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"{ENV_PREFIX}{name.upper()}", raising=False)
    monkeypatch.setenv("PROXYFLEET_DATABASE_URL", "postgresql://me:p%40ss%2F%C3%A9@db.example/fleet")
    monkeypatch.setenv("PROXYFLEET_BROKER_URL", "redis://broker.example")
    monkeypatch.setenv("PROXYFLEET_SECRET_KEY", "k" * 32)


def read() -> Settings:
    return settings.__wrapped__()


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("DATABASE_URL", "nonsense", "postgresql://"),
        ("DATABASE_URL", f"mysql://me:{PASSWORD}@db/fleet", "postgresql://"),
        ("DATABASE_URL", f"postgresql://me:{PASSWORD}#?@db/fleet", "percent-encoded"),
        ("DATABASE_URL", f"postgresql://me:{PASSWORD}@[::1/fleet", "percent-encoded"),
        ("BROKER_URL", "nonsense", "redis://"),
        ("BROKER_URL", "memory://", "redis://"),
        ("BROKER_URL", f"redis://:{PASSWORD}@broker:port/0", "percent-encoded"),
        ("SECRET_KEY", PASSWORD, "at least 32"),
        ("ALLOWED_HOSTS", ",", "at least 1"),
        ("PROVIDERS_CONFIG", "/nowhere/providers.yaml", "/nowhere/providers.yaml: can't be read"),
        ("PROBE_CA_FILE", "/nowhere/ca.pem", "file"),
        ("PROBE_CA_FILE", __file__, "PEM"),
        ("HEALTHCHECK_URL", f"https://me:{PASSWORD}@example.com/", "must not carry"),
        ("DISCOVERY_TOKEN", f"{PASSWORD} ", "Authorization header"),
        ("RECONCILE_INTERVAL", "inf", "less than or equal"),
        ("RECONCILE_INTERVAL", "nan", "less than or equal"),
        ("PROBE_INTERVAL", "0.0001", "greater than or equal"),
        ("GC_INTERVAL", "1e300", "less than or equal"),
        ("GC_MIN_AGE", "1e300", "less than or equal"),
        ("PROVISION_TIMEOUT", "1e300", "less than or equal"),
        ("MAX_LEASE_TTL", "99999999999999", "less than or equal"),
        ("DEFAULT_LEASE_TTL", "99999999999999", "less than or equal"),
        ("LEASE_COOLDOWN", "99999999999999", "less than or equal"),
        ("EVENT_RETENTION_DAYS", "99999999999999", "less than or equal"),
        ("WORKER_CONCURRENCY", "100000", "less than or equal"),
        ("PROVIDER_CHECK_TIMEOUT", "61", "must not be longer than PROXYFLEET_PROVIDER_CHECK_INTERVAL"),
    ],
)
def test_a_bad_value_is_named(variable: str, value: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{ENV_PREFIX}{variable}", value)
    with pytest.raises(ImproperEnvironment) as caught:
        read()
    assert str(caught.value).startswith(f"{ENV_PREFIX}{variable}: ")
    assert words in str(caught.value)
    assert PASSWORD not in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_every_missing_one_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "BROKER_URL", "SECRET_KEY"):
        monkeypatch.setenv(f"{ENV_PREFIX}{name}", "")
    with pytest.raises(ImproperEnvironment) as caught:
        read()
    named = [line.partition(":")[0] for line in str(caught.value).splitlines()]
    assert named == ["PROXYFLEET_DATABASE_URL", "PROXYFLEET_BROKER_URL", "PROXYFLEET_SECRET_KEY"]


def test_a_mistake_in_the_providers_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "providers.yaml"
    file.write_text("providers: [{name: here, type: process, proces: {}}]")
    monkeypatch.setenv("PROXYFLEET_PROVIDERS_CONFIG", str(file))
    with pytest.raises(ImproperEnvironment, match=r"PROXYFLEET_PROVIDERS_CONFIG: .*providers.yaml: .*here.*proces"):
        read()


def test_what_is_empty_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, field in Settings.model_fields.items():
        if not field.is_required():
            monkeypatch.setenv(f"{ENV_PREFIX}{name.upper()}", "")
    assert read().max_lease_ttl == Settings.model_fields["max_lease_ttl"].default


@pytest.mark.parametrize(("interval", "timeout"), [("60", 15), ("5", 5)])
def test_a_check_ends_before_the_next_begins(interval: str, timeout: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXYFLEET_PROVIDER_CHECK_INTERVAL", interval)
    assert read().check_timeout == timeout
