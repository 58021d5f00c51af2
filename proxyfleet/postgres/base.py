from __future__ import annotations

import select
import sys
from typing import Any

from django.db.backends.postgresql import base


class DatabaseWrapper(base.DatabaseWrapper):
    def get_connection_params(self) -> dict[str, Any]:
        """Have statements prepared that ask for it, and no others: Django's own setting is that not even those are."""
        params: dict[str, Any] = super().get_connection_params()
        return params | {"prepare_threshold": sys.maxsize}

    def is_usable(self) -> bool:
        """Whether the connection works; asked before the first statement of each request.

        A server that restarted or threw us out has closed its end, which our own kernel knows: Django's query for it
        would cost as much as a lease. Only where something is amiss or came in unasked is the server asked.
        """
        if self.connection is None:
            return False
        if self.errors_occurred or _has_input(self.connection.fileno()):
            usable: bool = super().is_usable()
            return usable
        return True


def _has_input(descriptor: int) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))
