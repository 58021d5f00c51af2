"""What a person who waits is told."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Print to standard error: standard output is for what a shell reads."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - a command line's voice
