"""Serves the API, past all that Django does with a request of the admin's.

Sessions, forms, cookies and translations are not the API's; what remains is the request, a view and the response. The
settings know one list of middleware for all, and half of what a lease may cost would go into it, into signals that
nobody hears, and into the search for a view among all pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from django.core.handlers.exception import convert_exception_to_response
from django.core.handlers.wsgi import WSGIRequest
from django.db import DEFAULT_DB_ALIAS, connections
from django.http import HttpRequest, HttpResponse
from django.template.response import SimpleTemplateResponse
from django.urls import get_resolver
from django.utils.log import log_response

from leasing.api.problems import PREFIX

_URLS = "leasing.api.urls"


def is_for_api(path: str) -> bool:
    return path.startswith(PREFIX)


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """The API as a WSGI application, for paths below PREFIX."""
    request = WSGIRequest(environ)
    try:
        response = respond(request)
    finally:
        request.close()
        # As at the end of Django's requests: the next one asks again whether the connection still works.
        connections[DEFAULT_DB_ALIAS].close_if_unusable_or_obsolete()
    start_response(f"{response.status_code} {response.reason_phrase}", list(response.items()))
    return (response.content,)


def respond(request: HttpRequest) -> HttpResponse:
    """What the view answers, or the problem that its error is."""
    response: HttpResponse = _answer(request)
    if response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log_response("%s: %s", response.reason_phrase, request.path, response=response, request=request)
    if response.status_code != HTTPStatus.NO_CONTENT:
        response.headers.setdefault("Content-Length", str(len(response.content)))  # else it is sent in chunks
    return response


def _view(request: HttpRequest) -> HttpResponse:
    match = get_resolver(_URLS).resolve(request.path_info[len(PREFIX) - 1 :])
    response: HttpResponse = match.func(request, *match.args, **match.kwargs)
    return response.render() if isinstance(response, SimpleTemplateResponse) else response


_answer: Callable[[HttpRequest], Any] = convert_exception_to_response(_view)
