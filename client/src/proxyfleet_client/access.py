"""Where the API is and how to be let in."""

from __future__ import annotations

import os
from typing import Self

from proxyfleet_client import calls


class Access:
    """What both fleets know of the API."""

    def __init__(self, api: str, token: str | None = None, *, patience: float = calls.PATIENCE_SECONDS) -> None:
        """``api`` is where the API listens, as ``http://localhost:8090``.

        ``patience`` is how many seconds a call is tried again while the API does not answer, or asks for time.
        """
        self._api = f"{api.rstrip('/')}/v1/"
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._patience = patience

    @classmethod
    def from_environment(cls) -> Self:
        """Of ``PROXYFLEET_API`` and ``PROXYFLEET_TOKEN``. Raises KeyError when the first is not set."""
        return cls(os.environ["PROXYFLEET_API"], os.environ.get("PROXYFLEET_TOKEN"))
