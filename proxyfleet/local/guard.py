"""Kills the process groups of a parent that died without stopping them, be it by ``kill -9``.

Reads ``+PGID`` and ``-PGID`` lines from its standard input, whose end is the parent's end.
PR_SET_PDEATHSIG would reach the children only: the workers of a killed web server live on and hold its port.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        change = groups.add if line[0] == "+" else groups.discard
        change(int(line[1:]))
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
