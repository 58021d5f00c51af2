"""Orphans that are real processes of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from django.utils import timezone

from providers.base import Provider
from providers.config import load_providers_config
from providers.instances import Identity, Instance, InstanceRequest
from providers.registry import Providers
from proxyfleet.conf import settings
from proxyfleet.fleet.orphans import collect_orphans

MIN_AGE = timedelta(minutes=10)
PROVIDERS = "providers: [{name: here, type: process, process: {}}]"


@pytest.fixture
def fleets(tmp_path: Path) -> Iterator[dict[str, Provider]]:
    """The same entry on the same machine, of our fleet and of another."""
    (tmp_path / "providers.yaml").write_text(PROVIDERS)
    config = load_providers_config(tmp_path / "providers.yaml")
    fleets = {
        name: Providers(config, fleet_id=name, state_dir=tmp_path).get("here")
        for name in (settings().fleet_id, "another")
    }
    yield fleets
    for provider in fleets.values():
        for instance in provider.list():
            provider.delete(instance.provider_id)


def make(fleets: dict[str, Provider], fleet: str) -> Instance:
    identity = Identity(fleet, uuid4(), "default", "gone", "0" * 16)
    return fleets[fleet].create(InstanceRequest(identity, port=3128))


@pytest.mark.django_db
def test_a_process_whose_row_is_gone_is_swept_and_no_other(fleets: dict[str, Provider]) -> None:
    ours, foreign = settings().fleet_id, "another"
    orphan, stranger = make(fleets, ours), make(fleets, foreign)
    provider = fleets[ours]

    assert collect_orphans("here", provider, timezone.now(), min_age=MIN_AGE, max_deletes=9) == [], "made this second"
    later = timezone.now() + MIN_AGE
    [named] = collect_orphans("here", provider, later, min_age=MIN_AGE, max_deletes=9, dry_run=True)
    assert (named.provider_id, named.action) == (orphan.provider_id, "would delete")
    assert provider.get(orphan.provider_id) == orphan, "a dry run deletes nothing"
    [swept] = collect_orphans("here", provider, later, min_age=MIN_AGE, max_deletes=9)
    assert (swept.provider_id, swept.action) == (orphan.provider_id, "deleted")
    assert list(provider.list()) == []
    assert list(fleets[foreign].list()) == [stranger]
