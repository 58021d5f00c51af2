"""May the rows be taken for all there is? The orphan GC deletes what has no row, so it asks here first."""

from __future__ import annotations

from datetime import datetime, timedelta

from proxyfleet.conf import settings
from proxyfleet.fleet.models import ClusterMirror

FRESH = timedelta(seconds=60)
"""The leading bridge gives a sign of life every ten seconds while its mirror is complete."""


class MirrorIncomplete(Exception):
    """Some proxies may have no row; the message says why and what to do."""


def require_complete_mirror(now: datetime) -> None:
    """Raises MirrorIncomplete when the cluster may hold proxies that no row shows."""
    conf = settings()
    if not conf.cluster_sync:
        return
    mirror = ClusterMirror.objects.first()
    if mirror is None or mirror.complete_at is None:
        raise MirrorIncomplete("the cluster's proxies have never been mirrored in full: does `manage.py k8s_sync` run?")
    if now - mirror.complete_at > FRESH:
        since = f"{mirror.complete_at:%Y-%m-%d %H:%M:%S} UTC"
        raise MirrorIncomplete(
            f"the cluster's proxies were last mirrored in full at {since}: does `manage.py k8s_sync` run?"
        )
    if mirror.namespace and not conf.gc_allow_namespaced:
        raise MirrorIncomplete(
            f"only the namespace {mirror.namespace} is mirrored, and others may hold proxies of this fleet; "
            "if none does, set PROXYFLEET_GC_ALLOW_NAMESPACED=true"
        )
