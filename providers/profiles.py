"""How each driver behaves, readable without importing any of them."""

from __future__ import annotations

from providers.base import AddressSource, BehaviourProfile, CreateStyle, DeleteStyle, ListConsistency

_LIBVIRT = BehaviourProfile(
    create=CreateStyle.SUBMITTED,
    delete=DeleteStyle.GONE,
    address=AddressSource.GUEST,
    list_consistency=ListConsistency.IMMEDIATE,
    call_deadline_seconds=90,
    create_deadline_seconds=1200,
    poll_seconds=2,
    relist_seconds=30,
    check_covers="SSH, libvirt, the storage pool and the network of every host; a bridge is not looked at",
)

PROFILES: dict[str, BehaviourProfile] = {
    "gcp": BehaviourProfile(
        create=CreateStyle.SUBMITTED,
        delete=DeleteStyle.SUBMITTED,
        address=AddressSource.BACKEND,
        list_consistency=ListConsistency.IMMEDIATE,
        call_deadline_seconds=45,
        create_deadline_seconds=60,
        poll_seconds=5,
        relist_seconds=60,
        check_covers="the credentials, the project, the right to list instances, and which zones answer",
    ),
    "kvm": _LIBVIRT,
    "kvm2": _LIBVIRT,
    "process": BehaviourProfile(
        create=CreateStyle.BLOCKING,
        delete=DeleteStyle.GONE,
        address=AddressSource.BACKEND,
        list_consistency=ListConsistency.IMMEDIATE,
        call_deadline_seconds=20,
        create_deadline_seconds=20,
        poll_seconds=0.5,
        relist_seconds=1,
        check_covers="the command exists, the host is an address of this machine and the state folder can be written",
    ),
    "kubernetes": BehaviourProfile(
        create=CreateStyle.SUBMITTED,
        delete=DeleteStyle.SUBMITTED,
        address=AddressSource.BACKEND,
        list_consistency=ListConsistency.IMMEDIATE,
        call_deadline_seconds=15,
        create_deadline_seconds=15,
        poll_seconds=1,
        relist_seconds=10,
        check_covers="pods may be listed, read, deleted and (by a dry run, through admission and quota) created",
    ),
    "proxmox": BehaviourProfile(
        create=CreateStyle.BLOCKING,
        delete=DeleteStyle.GONE,
        address=AddressSource.GUEST,
        list_consistency=ListConsistency.IMMEDIATE,
        call_deadline_seconds=90,
        create_deadline_seconds=600,
        poll_seconds=5,
        relist_seconds=60,
        check_covers="the token and its privileges, each node, isoStorage, storage, templates and bridge on it",
    ),
}

_UNKNOWN_DRIVER = BehaviourProfile(
    create=CreateStyle.SUBMITTED,
    delete=DeleteStyle.SUBMITTED,
    address=AddressSource.BACKEND,
    list_consistency=ListConsistency.EVENTUAL,
    call_deadline_seconds=60,
    create_deadline_seconds=60,
    poll_seconds=5,
    relist_seconds=60,
    check_covers="nothing: this version ships no such driver",
)


def profile_of(driver: str) -> BehaviourProfile:
    """The profile of a driver type; a type that this version does not ship is assumed slow."""
    return PROFILES.get(driver, _UNKNOWN_DRIVER)
