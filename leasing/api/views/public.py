"""What anyone may ask: who am I, and what can I ask."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views.decorators.clickjacking import xframe_options_deny
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerView

from leasing.api import answers
from leasing.api.base import PublicView, answer
from leasing.api.openapi import call

FORWARDING_HEADERS = (
    "Forwarded",
    "Via",
    "X-Forwarded-For",
    "X-Real-IP",
    "X-Client-IP",
    "Client-IP",
    "True-Client-IP",
    "Proxy-Connection",
)
"""What a proxy may add that gives its user away."""


class WhoAmI(PublicView):
    @call("whoAmI", answers={200: answers.WhoAmI})
    def get(self, request: HttpRequest) -> HttpResponse:
        """Where the request came from, as seen from here, and what proxies on the way said of it."""
        # The address of the connection itself: what is forwarded may be made up, and shows what a target could see.
        headers = {name: request.headers[name] for name in FORWARDING_HEADERS if name in request.headers}
        return answer(answers.WhoAmI(ip=request.META["REMOTE_ADDR"], headers=headers))


class Schema(SpectacularAPIView):
    authentication_classes = ()
    permission_classes = ()
    metadata_class = None


@method_decorator(xframe_options_deny, name="dispatch")
class Docs(SpectacularSwaggerView):
    authentication_classes = ()
    permission_classes = ()
    metadata_class = None


class Nowhere(PublicView):
    """Where no call is."""

    @extend_schema(exclude=True)
    def admit(self, request: HttpRequest) -> None:
        super().admit(request)
        raise Http404
