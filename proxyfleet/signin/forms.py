"""The form of the admin's sign-in."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.utils import timezone
from unfold.forms import AuthenticationForm

from proxyfleet.conf import settings
from proxyfleet.signin.address import client_of, site_of
from proxyfleet.signin.throttle import TooManyFailures, give_back, take


class ThrottledForm(AuthenticationForm):  # type: ignore[misc]  # django-unfold has no types
    locked_until: datetime | None = None
    """Set when nothing was tried, as too much had failed before."""

    def clean(self) -> dict[str, Any]:
        username, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if username is None or not password:
            return dict(super().clean())
        address = site_of(client_of(self.request.META, settings().trusted_proxies))
        try:
            take(username, address, timezone.now())
        except TooManyFailures as refusal:
            self.locked_until = refusal.until
            raise ValidationError("Too many failed tries.", code="throttled") from None
        cleaned: dict[str, Any] = super().clean()
        give_back(username, address)
        return cleaned
