"""The web process: admin and API."""

import os

from django.core.wsgi import get_wsgi_application
from django.utils import timezone

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "proxyfleet.settings")

application = get_wsgi_application()

# These read the settings and the models, which exist only now.
from leasing.access import prepare_access  # noqa: E402
from proxyfleet.conf import settings  # noqa: E402

_token = settings().discovery_token
prepare_access(_token.get_secret_value() if _token else None, now=timezone.now())
