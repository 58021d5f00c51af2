from __future__ import annotations

import subprocess
import sys

import pytest
from django.utils import timezone

from leasing import access
from leasing.models import ApiToken
from leasing.tests.processes import environment

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "a-token-from-the-settings"


def start_web(**variables: str) -> str:
    """Load the web process's application. Returns what it printed."""
    started = subprocess.run(
        [sys.executable, "-c", "import proxyfleet.wsgi"],
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return started.stdout + started.stderr


def test_the_web_process_says_that_the_api_is_open() -> None:
    assert "THE API IS OPEN" in start_web()


def test_the_web_process_seeds_the_token_of_the_settings_and_does_not_print_it() -> None:
    for _ in range(2):
        printed = start_web(PROXYFLEET_DISCOVERY_TOKEN=SECRET)
        assert "THE API IS OPEN" not in printed
        assert SECRET not in printed
    assert ApiToken.objects.count() == 1
    assert access.find_token(SECRET, timezone.now()) is not None
