"""What is measured on: PostgreSQL as in production, a database for each fleet, and the product's own web processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
from psycopg import sql

from proxyfleet.local.addresses import Address, free_port
from proxyfleet.local.processes import Child, Guard, wait_until
from proxyfleet.local.programs import programs
from proxyfleet.local.servers import LocalServers

ROOT = Path(__file__).parent.parent
TOKEN = "of-the-bench"  # noqa: S105  lives as long as the run
START_SECONDS = 60

LEASES_OUT = 100_000
COOLDOWNS = 10_000
COOLING_TARGET = "cooling.example"
"""Half of the cooldowns are for it."""

# What it is made from was perhaps measured already: requests that were under way at the end of that left leases behind.
_AS_NEW = """
delete from leasing_lease where owner <> 'bench';
update leasing_proxyload load
set active = (select count(*) from leasing_lease lease where lease.proxy_id = load.proxy_id);
"""
_LEASES_OUT = f"""
insert into leasing_lease (id, proxy_id, owner, client, target, created_at, expires_at)
select gen_random_uuid(), proxy_id, 'bench', '', '', now(), now() + interval '1 day'
from leasing_proxyload, generate_series(1, {LEASES_OUT} / (select count(*) from leasing_proxyload));
update leasing_proxyload load
set active = (select count(*) from leasing_lease lease where lease.proxy_id = load.proxy_id)
"""  # noqa: S608  a number of ours
_COOLDOWNS = f"""
insert into leasing_cooldown (proxy_id, target, until)
select proxy_id, case when proxy_id % 2 = 0 then '{COOLING_TARGET}' else 't' || proxy_id || '.example' end,
  now() + interval '1 day'
from leasing_proxyload limit {COOLDOWNS}
"""  # noqa: S608  a number and a name of ours
_FULL = "update leasing_proxyload set max_leases = active, ceiling = active"

_RECIPES: dict[str, tuple[str, int, str]] = {
    "small": ("empty", 100, ""),
    "large": ("empty", 10_000, ""),
    "probed": ("empty", 0, ""),
    "leased": ("large", 0, _LEASES_OUT),
    "cooled": ("large", 0, _COOLDOWNS),
    "full": ("leased", 0, _FULL),
}
"""By the name of the fleet: which one it is made from, the proxies that are added, and what is done to it."""


class Stage:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._made: set[str] = set()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=self._folder)))
            self._servers = stack.enter_context(LocalServers(home))
            self._guard = stack.enter_context(Guard())
            self._output = stack.enter_context((self._folder / "bench.log").open("wb"))
            self._state = home
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def database(self, fleet: str) -> psycopg.Connection:
        """A connection to the database of a fleet, as its administrator."""
        self._make(fleet)
        return psycopg.connect(self._url(fleet), autocommit=True)

    def output(self, fleet: str, *arguments: str) -> str:
        """What Python prints when it is run with these arguments and the settings of a fleet."""
        self._make(fleet)
        environment = os.environ | self._environment(fleet)
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout

    @contextmanager
    def web(self, fleet: str) -> Iterator[Address]:
        """The web process of `make run` on this fleet, with the no-op calls beside it, until the block ends."""
        self._make(fleet)
        address = Address("127.0.0.1", free_port())
        web = next(program for program in programs(address, self._state, cluster_sync=False) if program.name == "web")
        program = replace(web, argv=[*web.argv[:-1], "bench.wsgi:application"])
        environment = os.environ.copy()
        os.environ.update(self._environment(fleet))
        try:
            child = Child(program, self._guard, output=self._output)
        finally:
            os.environ.clear()
            os.environ.update(environment)
        try:
            if not wait_until(address.answers, START_SECONDS):
                raise RuntimeError(f"The web process does not answer; see {self._folder / 'bench.log'}.")
            yield address
        finally:
            child.stop()

    def _make(self, fleet: str) -> None:
        if fleet in self._made:
            return
        if fleet == "empty":
            self._create(fleet, "template0")
            self._run(fleet, "manage.py", "migrate", "--no-input", "--verbosity", "0")
        else:
            origin, proxies, statements = _RECIPES[fleet]
            self._make(origin)
            self._create(fleet, origin)
            if proxies:
                self._run(fleet, "-m", "bench.fleet", str(proxies))
            with psycopg.connect(self._url(fleet), autocommit=True) as connection:
                connection.execute((_AS_NEW + statements).encode())
                connection.execute("vacuum analyze")
                connection.execute("checkpoint")
        self._made.add(fleet)

    def _create(self, name: str, template: str) -> None:
        statement = sql.SQL("create database {} template {}")
        with psycopg.connect(self._servers.database_url, autocommit=True) as connection:
            connection.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))

    def _run(self, fleet: str, *arguments: str) -> None:
        subprocess.run([sys.executable, *arguments], cwd=ROOT, env=os.environ | self._environment(fleet), check=True)

    def _url(self, fleet: str) -> str:
        return f"{self._servers.database_url.rpartition('/')[0]}/{fleet}"

    def _environment(self, fleet: str) -> dict[str, str]:
        return {
            "DJANGO_SETTINGS_MODULE": "bench.settings",
            "PROXYFLEET_DATABASE_URL": self._url(fleet),
            "PROXYFLEET_BROKER_URL": self._servers.broker_url,
            "PROXYFLEET_DISCOVERY_TOKEN": TOKEN,
            "PROXYFLEET_HTTPS": "false",
            "PROXYFLEET_SECRET_KEY": "of-the-bench-of-the-bench-of-the-bench",
            "PROXYFLEET_STATE_DIR": str(self._state),
        }
