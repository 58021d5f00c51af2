"""Whose a domain is, as an element of its ``<metadata>``: written with the definition, read back from it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID
from xml.etree.ElementTree import Element, SubElement, register_namespace

from providers.errors import Misconfigured
from providers.instances import Identity

NAMESPACE = "urn:proxyfleet:instance:1"
TAG = f"{{{NAMESPACE}}}instance"

ADDRESS_NAMESPACE = "urn:proxyfleet:address:1"
"""Of an element that is added later: the address that the guest was last seen at."""

register_namespace("proxyfleet", NAMESPACE)


@dataclass(frozen=True, slots=True)
class Record:
    """What a domain says about itself."""

    entry: str
    identity: Identity
    created_at: datetime
    """By the host's clock."""


def to_element(record: Record) -> Element:
    element = Element(TAG)
    for name, value in {
        "entry": record.entry,
        "fleet": record.identity.fleet_id,
        "proxyUid": str(record.identity.proxy_uid),
        "namespace": record.identity.namespace,
        "name": record.identity.name,
        "instanceHash": record.identity.instance_hash,
        "createdAt": record.created_at.isoformat(),
    }.items():
        SubElement(element, f"{{{NAMESPACE}}}{name}").text = value
    return element


def from_domain(domain: Element) -> Record | None:
    """The record in a domain's description; None when the domain is nobody's of ours.

    Raises Misconfigured when there is one that can't be understood: it is ours, and nothing may be done with it.
    """
    element = domain.find(f"metadata/{TAG}")
    if element is None:
        return None
    fields = {child.tag.removeprefix(f"{{{NAMESPACE}}}"): child.text or "" for child in element}
    try:
        return Record(
            entry=fields["entry"],
            identity=Identity(
                fleet_id=fields["fleet"],
                proxy_uid=UUID(fields["proxyUid"]),
                namespace=fields["namespace"],
                name=fields["name"],
                instance_hash=fields["instanceHash"],
            ),
            created_at=datetime.fromisoformat(fields["createdAt"]),
        )
    except (KeyError, ValueError) as error:
        name = domain.findtext("name")
        raise Misconfigured("the metadata of an instance is damaged", detail=f"domain {name}: {error!r}") from error


def address_from_domain(domain: Element) -> str | None:
    return domain.findtext(f"metadata/{{{ADDRESS_NAMESPACE}}}address")
