"""When the orphan GC may take the rows for all there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from proxyfleet import conf
from proxyfleet.fleet.completeness import FRESH, MirrorIncomplete, require_complete_mirror
from proxyfleet.fleet.models import ClusterMirror, ProviderState, Proxy
from proxyfleet.fleet.tasks import collect_orphans
from proxyfleet.fleet.tests.world import World

NOW = timezone.now()
Set = Callable[..., None]


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch) -> Iterator[Set]:
    """Set PROXYFLEET_* variables of this test."""

    def put(**variables: str) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(f"PROXYFLEET_{name}", value)
        conf.settings.cache_clear()

    yield put
    monkeypatch.undo()
    conf.settings.cache_clear()


@pytest.mark.django_db
def test_without_a_cluster_the_rows_are_all_there_is() -> None:
    require_complete_mirror(NOW)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("age", "namespace", "words"),
    [
        (None, "", "never been mirrored in full"),
        (FRESH + timedelta(seconds=1), "", "last mirrored in full at"),
        (timedelta(0), "crawl", "only the namespace crawl is mirrored"),
    ],
)
def test_an_incomplete_mirror_is_refused(configure: Set, age: timedelta | None, namespace: str, words: str) -> None:
    configure(CLUSTER_SYNC="true")
    ClusterMirror.objects.create(complete_at=None if age is None else NOW - age, namespace=namespace)
    with pytest.raises(MirrorIncomplete, match=words):
        require_complete_mirror(NOW)


@pytest.mark.django_db
def test_a_complete_mirror_is_taken(configure: Set) -> None:
    configure(CLUSTER_SYNC="true")
    ClusterMirror.objects.create(complete_at=NOW - FRESH)
    require_complete_mirror(NOW)
    ClusterMirror.objects.update(namespace="crawl")
    configure(GC_ALLOW_NAMESPACED="true")
    require_complete_mirror(NOW)


def test_a_refused_sweep_deletes_nothing_and_says_so(
    world: World, configure: Set, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("orphans", "management.commands.collect_orphans"):
        monkeypatch.setattr(f"proxyfleet.fleet.{module}.providers", lambda: world.providers)
    proxy = world.ready(world.declare("lost"))
    Proxy.objects.filter(pk=proxy.pk).delete()
    configure(CLUSTER_SYNC="true")
    assert collect_orphans(entry="mem") == 0
    assert len(world.live()) == 1
    assert "never been mirrored in full" in ProviderState.objects.get(pk="mem").orphans_error
    with pytest.raises(CommandError, match="mem: the cluster's proxies have never been mirrored in full"):
        call_command("collect_orphans", stdout=StringIO())

    ClusterMirror.objects.create(complete_at=timezone.now())
    assert collect_orphans(entry="mem") == 1
    assert not world.live()
    assert ProviderState.objects.get(pk="mem").orphans_error == ""
