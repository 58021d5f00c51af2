"""``python -m tests.cluster build``: see ``--help``."""

from __future__ import annotations

import argparse
import sys

from tests.cluster import binaries, programs
from tests.cluster.errors import ClusterError
from tests.cluster.output import say


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description="A real Kubernetes to test on.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("build", help="get the programs of an API server: given, cached, or built in about five minutes")
    parser.parse_args()
    try:
        binaries.obtain(programs.API_SERVER_TIER)
    except ClusterError as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
