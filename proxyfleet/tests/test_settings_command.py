"""``manage.py settings`` shows the whole table and no secret."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from proxyfleet import conf


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PROXYFLEET_DISCOVERY_TOKEN", "hush-hush-hush")
    monkeypatch.setenv("PROXYFLEET_BROKER_URL", "redis://user:hush-hush-hush@broker/0")
    monkeypatch.setenv("PROXYFLEET_ALLOWED_HOSTS", "fleet.example, localhost")
    monkeypatch.setenv("PROXYFLEET_GC_MIN_AGE", "90")
    monkeypatch.setattr("proxyfleet.management.commands.settings.settings", conf.Settings)
    out = StringIO()
    call_command("settings", stdout=out)
    return out.getvalue()


def test_every_variable_is_listed_with_its_purpose(table: str) -> None:
    for name, field in conf.Settings.model_fields.items():
        assert f"PROXYFLEET_{name.upper()}=" in table
        assert field.description is not None
        assert field.description in table


def test_values_are_shown_as_they_are_written(table: str) -> None:
    assert "PROXYFLEET_ALLOWED_HOSTS=fleet.example,localhost\n" in table
    assert "(list; default localhost,127.0.0.1,[::1])" in table
    assert "PROXYFLEET_GC_MIN_AGE=90\n" in table
    assert "(number; default 600)" in table
    assert "(true or false; default true)" in table
    assert "(path; no default)" in table
    assert "(secret; required)" in table


def test_the_document_is_up_to_date() -> None:
    out = StringIO()
    call_command("settings", "--markdown", stdout=out)
    document = Path(__file__).parents[2] / "docs" / "settings.md"
    assert document.read_text() == out.getvalue(), "make docs"


def test_secrets_are_masked(table: str) -> None:
    assert "PROXYFLEET_DISCOVERY_TOKEN=**********\n" in table
    assert "PROXYFLEET_BROKER_URL=**********\n" in table
    assert "hush" not in table
