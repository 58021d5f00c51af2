"""A proxy as a pod, and a pod as an instance. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from ipaddress import ip_address
from typing import Any
from uuid import UUID

from providers.instances import Identity, Instance, InstanceRequest, InstanceState
from providers.kubernetes.states import state_of

Object = dict[str, Any]

PREFIX = "crawl.example.com/"
FLEET, ENTRY = PREFIX + "fleet", PREFIX + "entry"
PROXY_UID, INSTANCE_HASH = PREFIX + "proxy-uid", PREFIX + "instance-hash"
PROXY_NAMESPACE, PROXY_NAME = PREFIX + "proxy-namespace", PREFIX + "proxy-name"
SQUID_CONF = PREFIX + "squid.conf"

SQUID_USER = 13
"""``proxy`` in Debian's and Ubuntu's images."""
GRACE_SECONDS = 5
CONFIG_FOLDER = "/etc/proxyfleet"
FIRST_FREE_PORT = 1024
"""Below, a process without privileges may not listen unless the pod asks for it."""


def owner_labels(fleet_id: str, entry: str) -> dict[str, str]:
    """What every pod of an entry of a fleet carries, and no other."""
    return {"app.kubernetes.io/managed-by": "proxyfleet", FLEET: fleet_id, ENTRY: entry}


def manifest(request: InstanceRequest, *, entry: str, namespace: str, image: str, squid_conf: str) -> Object:
    """The pod that ``request`` asks for: it meets Pod Security's level ``restricted`` and any quota on limits."""
    identity = request.identity
    sysctls = [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}] if request.port < FIRST_FREE_PORT else []
    zone = request.placement.zone
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": request.name,
            "namespace": namespace,
            "labels": {
                "app.kubernetes.io/name": "squid",
                **owner_labels(identity.fleet_id, entry),
                PROXY_UID: str(identity.proxy_uid),
                INSTANCE_HASH: identity.instance_hash,
            },
            # Names of proxies may be longer than a label's 63 characters.
            "annotations": {
                PROXY_NAMESPACE: identity.namespace,
                PROXY_NAME: identity.name,
                SQUID_CONF: squid_conf,
            },
        },
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "nodeSelector": {"topology.kubernetes.io/zone": zone} if zone else {},
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": SQUID_USER,
                "runAsGroup": SQUID_USER,
                "seccompProfile": {"type": "RuntimeDefault"},
                "sysctls": sysctls,
            },
            "containers": [_squid(image, request.port)],
            "volumes": [
                {
                    "name": "config",
                    "downwardAPI": {
                        "items": [
                            {"path": "squid.conf", "fieldRef": {"fieldPath": f"metadata.annotations['{SQUID_CONF}']"}}
                        ]
                    },
                }
            ],
        },
    }


def _squid(image: str, port: int) -> Object:
    listens = {"tcpSocket": {"port": port}, "timeoutSeconds": 1}
    return {
        "name": "squid",
        "image": image,
        # In the foreground, one process, its log to stderr: it needs no file that it could write.
        "command": ["/usr/sbin/squid", "-N", "-d1", "-f", f"{CONFIG_FOLDER}/squid.conf"],
        "ports": [{"name": "proxy", "containerPort": port}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": {
            "requests": {"cpu": "50m", "memory": "64Mi"},
            "limits": {"cpu": "1", "memory": "256Mi"},
        },
        "startupProbe": {**listens, "periodSeconds": 1, "failureThreshold": 60},
        "livenessProbe": {**listens, "periodSeconds": 10, "failureThreshold": 3},
        "volumeMounts": [{"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True}],
    }


def provider_id(pod: Object, *, entry: str) -> str:
    metadata = pod["metadata"]
    return f"{entry}://{metadata['namespace']}/{metadata['name']}/{metadata['uid']}"


def identity_of(pod: Object) -> Identity | None:
    """Whose it is; None when it does not say so, or not so that it could be ours."""
    metadata = pod["metadata"]
    marks = {**metadata.get("annotations", {}), **metadata.get("labels", {})}
    try:
        return Identity(
            fleet_id=marks[FLEET],
            proxy_uid=UUID(marks[PROXY_UID]),
            namespace=marks[PROXY_NAMESPACE],
            name=marks[PROXY_NAME],
            instance_hash=marks[INSTANCE_HASH],
        )
    except (KeyError, ValueError):
        return None


def is_marked(pod: Object, *, fleet_id: str, entry: str) -> bool:
    labels: dict[str, str] = pod["metadata"].get("labels", {})
    return owner_labels(fleet_id, entry).items() <= labels.items()


def instance_of(pod: Object, identity: Identity, *, entry: str) -> Instance:
    state, message = state_of(pod)
    return Instance(
        provider_id=provider_id(pod, entry=entry),
        identity=identity,
        state=state,
        created_at=datetime.fromisoformat(pod["metadata"]["creationTimestamp"]),
        address=next(_addresses(pod), None) if state is InstanceState.RUNNING else None,
        message=message,
    )


def _addresses(pod: Object) -> Iterator[str]:
    """IPv4 first."""
    found = [ip_address(entry["ip"]) for entry in pod["status"].get("podIPs", ())]
    for address in sorted(found, key=lambda address: address.version):
        if not address.is_link_local:
            yield str(address)


# A name of the distribution spec: [host[:port]/]path[:tag][@digest]
_IMAGE = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]+)?/)?"
    r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@[a-z0-9]+(?:[+._-][a-z0-9]+)*:[0-9a-fA-F]{32,})?"
)


def is_image_name(text: str) -> bool:
    """Checked by us, because the API server takes any text: the node would find out, and for good."""
    return _IMAGE.fullmatch(text) is not None
