"""The API as a stranger sees it: requests made up from its OpenAPI document, right and wrong ones, on a live server.

Schemathesis asks of each answer: no crash, a status, media type, headers and body that the document describes; what the
document forbids is refused, what it allows is accepted, tokens are asked for, what was deleted is gone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api_processes import ROOT, TOKEN, Deployment

pytestmark = pytest.mark.timeout(900)

MAKE_FLEET = """
from proxyfleet.fleet.tests.world import new_world
with new_world() as world:
    for number in range(3):
        spec = {"mode": "External", "endpoint": {"host": f"192.0.2.{number + 1}"}, "maxLeases": 10_000}
        world.ready(world.declare(**spec))
"""
WHOLE_DATABASE = """
from django.db import connection
with connection.cursor() as cursor:
    for table in connection.introspection.table_names(cursor):
        cursor.execute(f"select row_::text from {table} row_")
        for (row,) in cursor.fetchall():
            print(row)
"""


def test_the_server_keeps_what_its_document_promises_and_its_token_to_itself(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    deployment = Deployment(tmp_path, processes=1, fleet=MAKE_FLEET)
    deployment.start()
    try:
        (address,) = deployment.addresses
        seed = ["--seed", "1"] if os.environ.get("CI") else []
        run = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli"),
                *("--config-file", str(ROOT / "tests" / "schemathesis.toml")),
                *("run", f"{address.local_url}/v1/schema", "--header", f"Authorization: Bearer {TOKEN}", "--no-color"),
                *("--generation-database", "none", "--checks", "all", "--warnings", "off"),
                *("--max-examples", str(request.config.getoption("--examples")), *seed),
            ],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        everything = deployment.manage("shell", "--no-imports", "--command", WHOLE_DATABASE)
    finally:
        deployment.stop()
    assert run.returncode == 0, run.stdout
    assert "discovery-token" in everything
    assert TOKEN not in everything
    assert TOKEN not in (tmp_path / "web.log").read_text()
