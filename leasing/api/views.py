"""The calls of the API: read the request, make one call down, show the result."""

from __future__ import annotations

from django.http import Http404
from rest_framework.request import Request
from rest_framework.response import Response

from leasing.api.base import PublicView

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
    def get(self, request: Request) -> Response:
        """Where the request came from, as seen from here, and what proxies on the way said of it."""
        headers = {name: request.headers[name] for name in FORWARDING_HEADERS if name in request.headers}
        return Response({"ip": request.META["REMOTE_ADDR"], "headers": headers})


class Nowhere(PublicView):
    """Where no call is."""

    def initial(self, *_args: object, **_kwargs: object) -> None:
        raise Http404
