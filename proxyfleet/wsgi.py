"""The web process: admin and API."""

import os
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "proxyfleet.settings")

_site = get_wsgi_application()

# These import models, which can't be done before Django is set up.
from django.db import connection  # noqa: E402
from django.utils import timezone  # noqa: E402

from leasing.access import prepare_access  # noqa: E402
from leasing.api import handler as api  # noqa: E402
from proxyfleet import scrape  # noqa: E402
from proxyfleet.conf import settings  # noqa: E402
from proxyfleet.observability import exposition, listener, tracing  # noqa: E402


def _serve(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    path = environ["PATH_INFO"]
    if api.is_for_api(path):
        return api.application(environ, start_response)
    if path == exposition.PATH:
        # Prometheus names this process by its address, which is no host of the site's.
        return scrape.application(environ, start_response)
    return _site(environ, start_response)


application: WSGIApplication = tracing.traced(_serve) if tracing.start("web") else _serve
listener.start_counting()
_token = settings().discovery_token
prepare_access(_token.get_secret_value() if _token else None, now=timezone.now())
connection.close()  # the threads that serve requests open their own
