"""`manage.py collect_orphans` on the backend in memory."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from providers.errors import Unavailable
from providers.tests.backend import Call, refuse
from providers.tests.contract import make_request
from proxyfleet.conf import settings
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.tests.world import World


@pytest.fixture
def orphan(world: World, monkeypatch: pytest.MonkeyPatch) -> str:
    """The providerID of an instance whose row is gone; old enough to be collected."""
    for module in ("orphans", "management.commands.collect_orphans"):
        monkeypatch.setattr(f"proxyfleet.fleet.{module}.providers", lambda: world.providers)
    proxy = world.ready(world.declare("lost"))
    Proxy.objects.filter(pk=proxy.pk).delete()
    return proxy.provider_id


def run(*arguments: str) -> str:
    output = StringIO()
    call_command("collect_orphans", *arguments, stdout=output)
    return output.getvalue()


def test_the_dry_run_names_orphan_owner_and_age_and_deletes_nothing(world: World, orphan: str) -> None:
    header, line = run("--dry-run").splitlines()
    assert header.split() == ["ENTRY", "PROVIDER", "ID", "OWNER", "AGE", "ACTION", "MESSAGE"]
    entry, provider_id, owner, age, *action = line.split()
    assert (entry, provider_id, owner, action) == ("mem", orphan, "default/lost", ["would", "delete"])
    assert int(age.removesuffix("s")) > 0
    assert len(world.live()) == 1


def test_the_sweep_deletes(world: World, orphan: str) -> None:
    assert "deleted" in run("--entry", "mem")
    assert not world.live()
    assert run() == "No orphans.\n"


def test_young_orphans_stay(world: World, orphan: str) -> None:
    world.backend.vanish(orphan)
    world.now = timezone.now()
    world.providers.get("mem").create(make_request(fleet_id=settings().fleet_id))
    assert run("--dry-run") == "No orphans.\n"


def test_what_can_not_be_asked_is_an_error(world: World, orphan: str) -> None:
    world.backend.faults[Call.LIST].append(refuse(Unavailable("the host does not answer")))
    with pytest.raises(CommandError, match="mem: the host does not answer"):
        run()
    with pytest.raises(CommandError, match="nosuch: the providers file has no entry 'nosuch'"):
        run("--entry", "nosuch")
