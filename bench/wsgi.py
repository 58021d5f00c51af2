"""The product's web process, and beside it the no-op calls as Django itself serves them, without any middleware."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast
from wsgiref.types import StartResponse, WSGIEnvironment

from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse
from django.test import override_settings

from bench.calls import NOOP
from proxyfleet.wsgi import application as product


class _Handler(WSGIHandler):
    def get_response(self, request: HttpRequest) -> HttpResponse:
        response = cast(HttpResponse, super().get_response(request))
        response.headers.setdefault("Content-Length", str(len(response.content)))  # else it is sent in chunks
        return response


with override_settings(MIDDLEWARE=[]):
    _noop = _Handler()


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    return (_noop if environ["PATH_INFO"] == NOOP else product)(environ, start_response)
