"""A supervisor to be run as a process of its own: ``python -m proxyfleet.local.tests.supervise PROGRAMS``.

PROGRAMS is a JSON list of objects: name, argv, and optionally once, grace_seconds, and ``ready``, a file to wait for.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from proxyfleet.local.errors import LocalError
from proxyfleet.local.processes import Program
from proxyfleet.local.supervisor import Supervisor


def main() -> None:
    programs = []
    for fields in json.loads(sys.argv[1]):
        if path := fields.pop("ready", None):
            fields["ready"] = Path(path).exists
        programs.append(Program(**fields))
    try:
        Supervisor(programs, sys.stdout.buffer).run()
    except LocalError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
