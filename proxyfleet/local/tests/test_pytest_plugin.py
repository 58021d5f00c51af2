import os
import socket

import psycopg
import pytest


def test_the_environment_names_a_database_that_answers() -> None:
    with psycopg.connect(os.environ["PROXYFLEET_DATABASE_URL"]) as connection:
        assert connection.execute("SELECT current_database()").fetchone() == ("proxyfleet",)


def test_only_the_loopback_is_reachable() -> None:
    with pytest.warns(UserWarning, match=r"192\.0\.2\.1"), pytest.raises(RuntimeError, match=r"192\.0\.2\.1"):
        socket.create_connection(("192.0.2.1", 80), timeout=1)
