"""What there is in the one project, and the rules that the discovery document tells in words only."""

from __future__ import annotations

import re
from collections.abc import Callable

from providers.gcp.tests.standin.answers import Json, invalid, not_found
from providers.gcp.tests.standin.resources import Machine

PROJECT = "test-project"
ZONES = ("europe-west1-b", "europe-west1-c", "us-east1-d")
MACHINE_TYPES = frozenset({"e2-small", "e2-micro", "n2-standard-2"})
IMAGES = frozenset({"projects/debian-cloud/global/images/family/debian-12", "global/images/squid"})
NETWORKS = frozenset({"global/networks/default", "global/networks/crawl"})

Matches = Callable[[Machine], bool]


def check_instance(body: Json, zone: str) -> None:
    """Raises Refused."""
    if body["machineType"] not in {f"zones/{zone}/machineTypes/{name}" for name in MACHINE_TYPES}:
        raise invalid("resource.machineType", body["machineType"], "The referenced resource does not exist.")
    labels = body.get("labels", {})
    if len(labels) > 64:
        raise invalid("resource.labels", len(labels), "At most 64 labels.")
    for key, value in labels.items():
        if not re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", key) or not re.fullmatch(r"[a-z0-9_-]{0,63}", value):
            raise invalid("resource.labels", f"{key}: {value}", "Label keys and values are limited to 63 characters.")
    _check_metadata(body.get("metadata", {}).get("items", []))
    boot = [disk for disk in body.get("disks", ()) if disk.get("boot")]
    if len(boot) != 1:
        raise invalid("resource.disks", "", "One disk must be a boot disk.")
    image = boot[0]["initializeParams"]["sourceImage"]
    if image not in IMAGES:
        raise not_found(image if image.startswith("projects/") else f"projects/{PROJECT}/{image}")
    if int(boot[0]["initializeParams"]["diskSizeGb"]) < 10:
        raise invalid("resource.disks[0].initializeParams.diskSizeGb", "", "Smaller than the image.")
    for interface in body.get("networkInterfaces", ()):
        if interface["network"] not in NETWORKS:
            raise not_found(f"projects/{PROJECT}/{interface['network']}")
    if not body.get("networkInterfaces"):
        raise invalid("resource.networkInterfaces", "", "At least one network interface is required.")


def _check_metadata(items: list[Json]) -> None:
    keys = [item["key"] for item in items]
    if len(set(keys)) != len(keys):
        raise invalid("resource.metadata", keys, "Metadata has duplicate keys.")
    for position, item in enumerate(items):
        if len(item["value"].encode()) > 262_144:
            raise invalid(f"resource.metadata.items[{position}].value", item["value"], "Value is too large.")
    if sum(len(item["key"]) + len(item["value"].encode()) for item in items) >= 512 * 1024:
        raise invalid("resource.metadata", "", "Metadata is too large.")


def parse_filter(expression: str) -> Matches:
    """AIP-160 as far as labels go: `(labels.a = "b") (labels.c = "d")`."""
    wanted: dict[str, str] = {}
    rest = re.sub(
        r'\(labels\.([a-z0-9_-]+) = "([^"]*)"\)\s*', lambda term: wanted.update({term[1]: term[2]}) or "", expression
    )
    if rest:
        raise invalid("filter", expression, "Invalid list filter expression.")
    return lambda machine: all(machine.body.get("labels", {}).get(key) == value for key, value in wanted.items())
