"""``python -m proxyfleet.local run``: the whole product on this machine, until Ctrl-C."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from proxyfleet.conf import ImproperEnvironment
from proxyfleet.local.deployment import deployment
from proxyfleet.local.errors import LocalError
from proxyfleet.local.folders import remove_runtime_folder
from proxyfleet.local.lock import exclusive
from proxyfleet.local.supervisor import Supervisor


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m proxyfleet.local", description=__doc__)
    parser.add_argument("command", choices=["run"])
    parser.parse_args()
    var = Path(os.environ.get("PROXYFLEET_STATE_DIR", "var")).resolve()
    try:
        with exclusive(var):
            programs = deployment(var, os.environ)
            try:
                Supervisor(programs, sys.stdout.buffer).run()
            finally:
                remove_runtime_folder(var)
    except (LocalError, ImproperEnvironment) as error:
        sys.exit(f"proxyfleet: {error}")


if __name__ == "__main__":
    main()
