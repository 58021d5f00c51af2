"""Requests that the stand-in can fulfil."""

from __future__ import annotations

from dataclasses import replace

from providers.gcp.tests.standin.backend import GceBackend
from providers.instances import InstanceRequest, Placement
from providers.tests.contract import FLEET, make_request

PLACEMENT = Placement(
    zone=GceBackend.placement["zone"],
    machine_type=GceBackend.placement["machineType"],
    image=GceBackend.placement["image"],
)


def gcp_request(*, fleet_id: str = FLEET, user_data: bytes | None = None, zone: str = "") -> InstanceRequest:
    placement = replace(PLACEMENT, zone=zone or PLACEMENT.zone)
    return replace(make_request(fleet_id=fleet_id, user_data=user_data), placement=placement)
