"""What the command line prints as one message, and a fixture turns into a failure."""

from __future__ import annotations


class ClusterError(Exception):
    """The cluster can't be had, or can't go on; the message says what was tried and what to do about it."""
