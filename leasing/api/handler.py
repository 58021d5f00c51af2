"""Requests of the API go to their views at once: sessions, forms and cookies are the admin's."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.core.handlers.base import BaseHandler
from django.core.handlers.exception import convert_exception_to_response
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from leasing.api.problems import PREFIX


class WithoutMiddleware(BaseHandler):
    """Settings know one list of middleware for all; the time that it takes is half of what a lease may cost."""

    def load_middleware(self, is_async: bool = False) -> None:  # noqa: ARG002  Django's signature
        self._view_middleware: list[Any] = []
        self._template_response_middleware: list[Any] = []
        self._exception_middleware: list[Any] = []
        self._middleware_chain = convert_exception_to_response(self._get_response)  # type: ignore[attr-defined]  # is there

    def get_response(self, request: HttpRequest) -> HttpResponseBase:
        response: HttpResponseBase = super().get_response(request)
        if isinstance(response, HttpResponse) and response.status_code != HTTPStatus.NO_CONTENT:
            response.headers.setdefault("Content-Length", str(len(response.content)))  # else it is sent in chunks
        return response


class ApiHandler(WithoutMiddleware, WSGIHandler):
    pass


def is_for_api(path: str) -> bool:
    return path.startswith(PREFIX)
