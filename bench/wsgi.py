"""The product's web process, and beside it the no-op calls as Django itself serves them, without any middleware."""

from __future__ import annotations

from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

from django.core.handlers.wsgi import WSGIHandler
from django.test import override_settings

from bench.calls import NOOP
from proxyfleet.wsgi import application as product

with override_settings(MIDDLEWARE=[]):
    _noop = WSGIHandler()


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    return (_noop if environ["PATH_INFO"] == NOOP else product)(environ, start_response)
