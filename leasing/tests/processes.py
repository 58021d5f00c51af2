"""Processes of their own on the test's database."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import quote

from django.db import connection


def environment() -> Mapping[str, str]:
    """Ours, with the database that the tests run on in place of the one that it was made beside."""
    settings = connection.settings_dict
    host, user, password = (quote(settings[key], safe="") for key in ("HOST", "USER", "PASSWORD"))
    port = f":{settings['PORT']}" if settings["PORT"] else ""
    url = f"postgresql://{user}:{password}@{host}{port}/{settings['NAME']}"
    return os.environ | {"PROXYFLEET_DATABASE_URL": url}
