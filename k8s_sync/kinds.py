"""The kinds of objects that the bridge reads and writes, as URLs name them."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

GROUP = "crawl.example.com"

FLEET_LABEL = f"{GROUP}/fleet"
"""Marks what belongs to one installation alone; its value is the fleet's id."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object that the API server keeps."""

    group: str
    """Empty: the core group."""
    version: str
    name: str
    """As in ``kind: Proxy``."""
    plural: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, *, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        """The URL's path of one object or, without ``name``, of all: in ``namespace``, or everywhere."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name is not None:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/" + "/".join(quote(part, safe="") for part in parts)


PROXY = Kind(GROUP, "v1alpha1", "Proxy", "proxies")
PROVIDER_HEALTH = Kind(GROUP, "v1alpha1", "ProviderHealth", "providerhealths")
NAMESPACE = Kind("", "v1", "Namespace", "namespaces")
SECRET = Kind("", "v1", "Secret", "secrets")
EVENT = Kind("events.k8s.io", "v1", "Event", "events")
ACCESS_REVIEW = Kind("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews")
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
