"""What the admin shows of suspect probe targets and of proxies' ways out."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from health.tests.fleet import add_proxies
from proxyfleet.fleet.admin.probing import egress_badges
from proxyfleet.fleet.models import ProbeTarget

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


def test_a_suspect_target_is_shown_where_providers_are(admin: Client) -> None:
    page = reverse("admin:fleet_providerstate_changelist")
    ProbeTarget.objects.create(host="weighed.example:443")
    assert b"Probe target suspect" not in admin.get(page).content
    ProbeTarget.objects.create(
        host="down.example:443", suspect_since=timezone.now(), stage="tls", failed=9, heard=10, message="<no> TLS"
    )
    shown = admin.get(page).content.decode()
    assert "Probe target suspect: down.example:443" in shown
    assert "9 of the last 10 proxies failed at the tls stage: &lt;no&gt; TLS" in shown
    assert "weighed.example" not in shown


def test_proxies_that_share_an_address_or_leak_ours_can_be_found(admin: Client) -> None:
    probed = {"probed_serial": 1, "verdict": "healthy"}
    one, other = add_proxies(2, **probed, egress_ip="203.0.113.9")
    [leaking] = add_proxies(1, **probed, egress_ip="203.0.113.10", leaking_headers="Via")
    page = reverse("admin:fleet_proxy_changelist")

    def listed(egress: str) -> set[object]:
        return set(admin.get(page, {"egress": egress}).context["cl"].result_list)

    assert listed("shared") == {one, other}
    assert listed("leaking") == {leaking}
    assert ["shared egress" in str(egress_badges(proxy)) for proxy in (one, leaking)] == [True, False]
    assert "leaks address" in str(egress_badges(leaking))
