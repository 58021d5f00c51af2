"""The rules for a new or changed spec that an installation sets for itself, on top of those that hold everywhere.

A spec that is stored already is not judged again: a stricter setting breaks no proxy that runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxyfleet.conf import settings
from proxyfleet.fleet.spec import InvalidSpec, ProxySpec, private_fields


def admit(declared: Mapping[str, Any]) -> ProxySpec:
    """The spec in ``declared``. Raises InvalidSpec that names every field that is wrong."""
    spec = ProxySpec.parse(declared)
    if settings().refuse_private_addresses and (fields := private_fields(spec)):
        raise InvalidSpec(
            {field: ["is not a public address, and this installation takes no other"] for field in fields}
        )
    return spec
