"""The bridge on a real API server, with a reconciler on a backend in memory in between."""

from __future__ import annotations

import threading

import pytest
from django.db.models import F

from k8s_sync import publisher
from k8s_sync.finalizers import FINALIZER, SKIP_CLEANUP
from k8s_sync.store import ObjectStore
from proxyfleet.fleet.models import Proxy
from proxyfleet.local.processes import wait_until
from tests.bridge.bridges import running
from tests.bridge.operator import Operator

CONFLICT = 409
pytestmark = pytest.mark.django_db(transaction=True)


def test_a_proxy_is_shown_from_apply_to_its_end(operator: Operator) -> None:
    with running(operator.cluster, operator.namespace):
        operator.apply("a")
        operator.until(lambda: operator.status("a").get("phase") == "Ready")
        row, status = operator.row("a"), operator.status("a")
        assert (status["ip"], status["providerID"], status["observedGeneration"]) == (row.address, row.provider_id, 1)
        assert {c["type"]: c["status"] for c in status["conditions"]} == dict.fromkeys(
            ("Provisioned", "Healthy", "Ready"), "True"
        )
        assert operator.proxy("a")["metadata"]["finalizers"] == [FINALIZER]
        assert len(operator.world.live()) == 1
        operator.kubectl("delete", "px", "a", "--wait=false")
        operator.until(lambda: not operator.exists("a"))
        assert operator.world.live() == []
        assert not Proxy.objects.exists()
    told = operator.kubectl(
        "get", "events.events.k8s.io", "-o", "jsonpath={range .items[*]}{.reason} {.note}{'\\n'}{end}"
    )
    for line in ("InstanceCreated", "PhaseChanged Provisioning → Ready: ProbeSucceeded", "InstanceDeleted", "Released"):
        assert line in told


def test_skip_cleanup_releases_a_proxy_whose_provider_entry_is_gone(operator: Operator) -> None:
    with running(operator.cluster, operator.namespace):
        operator.apply("stuck")
        operator.until(lambda: operator.status("stuck").get("phase") == "Ready")
        operator.world.providers.configure([])
        operator.kubectl("delete", "px", "stuck", "--wait=false")
        operator.until(lambda: operator.reason("stuck") == "ProviderNotConfigured")
        assert operator.status("stuck")["phase"] == "Terminating"
        operator.kubectl("annotate", "px", "stuck", f"{SKIP_CLEANUP}=true")
        operator.until(lambda: not operator.exists("stuck"))
    assert len(operator.world.live()) == 1, "nothing was deleted: it was abandoned"
    assert "InstanceAbandoned SkipCleanup: Cleanup was skipped: mem://" in operator.told()


def test_a_status_that_somebody_else_wrote_is_put_right(operator: Operator) -> None:
    with running(operator.cluster, operator.namespace):
        operator.apply("a")
        operator.until(lambda: operator.published() and operator.status("a").get("phase") == "Ready")
        lie = '{"status": {"phase": "Failed", "message": "a lie"}}'
        operator.kubectl("patch", "px", "a", "--subresource=status", "--type=merge", "-p", lie)
        operator.until(lambda: operator.status("a")["phase"] == "Ready" and "message" not in operator.status("a"))


def test_skip_cleanup_can_be_taken_back(operator: Operator) -> None:
    with running(operator.cluster, operator.namespace):
        operator.apply("a")
        operator.until(lambda: operator.status("a").get("phase") == "Ready")
        operator.kubectl("annotate", "px", "a", f"{SKIP_CLEANUP}=true")
        operator.until(lambda: operator.row("a").skip_cleanup)
        operator.kubectl("annotate", "px", "a", f"{SKIP_CLEANUP}-")
        operator.until(lambda: not operator.row("a").skip_cleanup)
        operator.kubectl("delete", "px", "a", "--wait=false")
        operator.until(lambda: not operator.exists("a"))
    assert operator.world.live() == []
    assert "SkipCleanupWithdrawn" in operator.told()


def test_a_write_on_an_object_of_the_past_is_refused_and_heals(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(operator.cluster, operator.namespace):
        operator.apply("a")
        operator.until(lambda: operator.status("a").get("phase") == "Ready")
        old = operator.proxy("a")
        operator.kubectl("label", "px", "a", "newer=true")
        since = operator.cluster.audit.mark()
        with monkeypatch.context() as behind:
            behind.setattr(ObjectStore, "get", lambda self, uid: old)
            Proxy.objects.update(message="news", revision=F("revision") + 1)
            operator.until(lambda: operator.writes(since, resource="proxies/status"))
            assert {write.code for write in operator.writes(since, resource="proxies/status")} == {CONFLICT}
            assert operator.status("a").get("message") is None
        operator.until(lambda: operator.status("a").get("message") == "news")
        assert operator.proxy("a")["metadata"]["labels"] == {"newer": "true"}


def test_a_status_that_was_overwritten_heals(operator: Operator) -> None:
    with running(operator.cluster, operator.namespace):
        operator.apply("a")
        operator.until(lambda: operator.status("a").get("phase") == "Ready" and operator.published())
    restored = '{"status": {"phase": "Pending", "ip": "192.0.2.99", "leases": 7}}'
    operator.kubectl("patch", "px", "a", "--subresource=status", "--type=merge", "--patch", restored)
    with running(operator.cluster, operator.namespace):
        operator.until(lambda: operator.status("a")["ip"] == operator.row("a").address)
        assert (operator.status("a")["phase"], operator.status("a")["leases"]) == ("Ready", 0)


class Killed(Exception):
    """A bridge ends here."""


def test_dying_between_the_status_and_its_mark_heals(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    has_died = threading.Event()

    def die(*_: object) -> None:
        has_died.set()
        raise Killed

    def run_and_die() -> None:
        with running(operator.cluster, operator.namespace), monkeypatch.context() as dying:
            dying.setattr(publisher, "_mark_published", die)
            operator.apply("a")
            assert wait_until(has_died.is_set, 30)  # nobody works on: the row stays as it is shown

    with pytest.raises(Killed):
        run_and_die()
    assert operator.status("a")
    assert operator.row("a").published_revision == 0
    since = operator.cluster.audit.mark()
    with running(operator.cluster, operator.namespace):
        assert wait_until(operator.published, 30)
    assert operator.writes(since, resource="proxies/status") == []
