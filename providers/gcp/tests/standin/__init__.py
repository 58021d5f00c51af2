"""A Compute Engine that refuses what the real one refuses, over HTTP on loopback.

Requests are checked against Google's own discovery document; time is the caller's clock, and an instance moves on by
being looked at, so that a test decides when anything happens.
"""
