"""Requests to the API server as somebody."""

from __future__ import annotations

from pathlib import Path

import requests
import yaml
from requests.adapters import HTTPAdapter
from urllib3 import Retry

# A server that has just started says so of kinds whose objects it has not read yet, and when to come again.
PATIENCE = Retry(total=30, status_forcelist=[requests.codes.too_many_requests], allowed_methods=None)


def session(kubeconfig: Path) -> requests.Session:
    """One that speaks for the user of ``kubeconfig``."""
    config = yaml.safe_load(kubeconfig.read_text())
    opened = requests.Session()
    opened.trust_env = False  # no proxy on the way to ourselves
    opened.mount("https://", HTTPAdapter(max_retries=PATIENCE))
    opened.verify = config["clusters"][0]["cluster"]["certificate-authority"]
    opened.headers["Authorization"] = f"Bearer {config['users'][0]['user']['token']}"
    return opened


def server(kubeconfig: Path) -> str:
    """The URL of its API server."""
    found: str = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    return found
