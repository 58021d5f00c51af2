"""Is this the cluster whose proxies the rows mirror? In another one each of them would look deleted."""

from __future__ import annotations

import logging

from k8s_sync.client import ApiServer
from k8s_sync.errors import ClusterError, NotFound, Refused
from k8s_sync.kinds import NAMESPACE
from k8s_sync.store import uid_of
from proxyfleet.fleet.models import ClusterMirror

logger = logging.getLogger(__name__)

OLDEST_NAMESPACE = "kube-system"
"""Made with the cluster and never again: its uid stands for the cluster's."""


class AnotherCluster(ClusterError):
    """The API server is that of another cluster than the one mirrored so far."""


def confirm_cluster(api: ApiServer, *, adopt: bool = False) -> None:
    """Remember this cluster at the first time, and with ``adopt``; raise AnotherCluster when it is not the remembered.

    An account that may not read the namespace is taken at its word. Raises Unreachable.
    """
    try:
        uid = uid_of(api.get(NAMESPACE, name=OLDEST_NAMESPACE))
    except (NotFound, Refused) as error:
        logger.warning("Whether this is the cluster that was mirrored before can't be told: %s", error)
        return
    mirror, _ = ClusterMirror.objects.get_or_create()
    if adopt or not mirror.cluster_uid:
        ClusterMirror.objects.update(cluster_uid=uid)
    elif mirror.cluster_uid != uid:
        raise AnotherCluster(
            f"this is the cluster {uid}, but the proxies were mirrored from {mirror.cluster_uid}: here, all of them "
            "would be taken for deleted. Check KUBECONFIG; if they are to go, run `manage.py k8s_sync --adopt-cluster`."
        )
