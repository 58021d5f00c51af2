"""One machine as a whole deployment: ``run`` it until Ctrl-C, or ``exec`` one command on servers made for it."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
from pathlib import Path

from proxyfleet.conf import ENV_PREFIX, ImproperEnvironment
from proxyfleet.local.deployment import deployment, stop_instances
from proxyfleet.local.errors import LocalError
from proxyfleet.local.folders import remove_runtime_folder
from proxyfleet.local.lock import exclusive
from proxyfleet.local.scratch import scratch_deployment
from proxyfleet.local.supervisor import Supervisor


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m proxyfleet.local", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run", help="PostgreSQL, Valkey, web, worker and beat on the state in var/, until Ctrl-C")
    execute = commands.add_parser("exec", help="a command with PostgreSQL and Valkey of its own in its environment")
    execute.add_argument("argv", nargs=argparse.REMAINDER, metavar="command")
    arguments = parser.parse_args()
    _forget_empty_variables()
    try:
        sys.exit(_run() if arguments.command == "run" else _execute(arguments.argv))
    except (LocalError, ImproperEnvironment) as error:
        sys.exit(f"proxyfleet: {error}")


def _run() -> int:
    var = Path(os.environ.get("PROXYFLEET_STATE_DIR", "var")).resolve()
    with exclusive(var):
        try:
            programs = deployment(var)
        except OSError as error:
            raise LocalError(f"{error.filename or var} can't be used: {error.strerror}.") from error
        try:
            Supervisor(programs, sys.stdout.buffer).run()
        finally:
            stop_instances()
            remove_runtime_folder(var)
    with contextlib.suppress(OSError):  # the terminal may be closed
        sys.stdout.write(f"Stopped; state is kept in {var}.\n")
        sys.stdout.flush()
    return 0


def _forget_empty_variables() -> None:
    """An empty one counts as unset, as conf.py has it: else "" would be taken for the folder we stand in."""
    for name in [name for name, value in os.environ.items() if name.startswith(ENV_PREFIX) and not value]:
        del os.environ[name]


def _execute(argv: list[str]) -> int:
    with scratch_deployment(os.environ):
        return subprocess.run(argv, check=False).returncode


if __name__ == "__main__":
    main()
