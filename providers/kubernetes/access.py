"""How a cluster is reached: the account of the pod that we run in, or a kubeconfig."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import yaml
from kubernetes.client import ApiClient, Configuration
from kubernetes.config import ConfigException, list_kube_config_contexts, load_incluster_config, load_kube_config

from providers.errors import Misconfigured

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class Access:
    """A client with connections of its own, and the namespace that its account or context belongs to."""

    client: ApiClient
    namespace: str


def open_access(kubeconfig_file: Path | None) -> Access:
    """By ``kubeconfig_file`` if given, else as the pod's own account, else by the standard KUBECONFIG.

    Connects nowhere yet. Raises Misconfigured when what there is can't be used.
    """
    configuration = Configuration()
    configuration.retries = False  # a create must not be sent twice, and a deadline not be waited for four times
    try:
        if kubeconfig_file is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            load_incluster_config(client_configuration=configuration)
            namespace = (SERVICE_ACCOUNT / "namespace").read_text().strip()
        else:
            files = str(kubeconfig_file or os.environ.get("KUBECONFIG") or "~/.kube/config")
            load_kube_config(files, client_configuration=configuration, persist_config=False)
            _, context = list_kube_config_contexts(files)
            namespace = context["context"].get("namespace", "")
    except ConfigException as error:
        raise Misconfigured(f"there is no access to a cluster: {error}") from error
    except yaml.YAMLError as error:
        # Its message may quote the file, which holds credentials.
        raise Misconfigured("there is no access to a cluster: the kubeconfig is not YAML") from error
    except OSError as error:
        raise Misconfigured(f"there is no access to a cluster: {error.filename}: {error.strerror}") from error
    return Access(ApiClient(configuration), namespace or DEFAULT_NAMESPACE)
