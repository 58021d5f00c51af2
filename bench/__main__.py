"""Measures, prints a table and writes ``var/bench.json``. Fails when a gate falls short for sure."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bench.measurements import MEASUREMENTS
from bench.results import Result, table
from bench.scale import FULL, QUICK
from bench.stage import Stage

VAR = Path("var")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", choices=MEASUREMENTS, help="one measurement")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, in a few minutes")
    arguments = parser.parse_args()
    scale = QUICK if arguments.quick else FULL
    VAR.mkdir(exist_ok=True)
    results: list[Result] = []
    with Stage(VAR) as stage:
        for name in [arguments.only] if arguments.only else MEASUREMENTS:
            sys.stderr.write(f"{name} ...\n")
            results += MEASUREMENTS[name](stage, scale)
    sys.stdout.write(table(results) + "\n")
    (VAR / "bench.json").write_text(json.dumps([result.as_json() for result in results], indent=2) + "\n")
    return 0 if all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
