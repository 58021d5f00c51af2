from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from health.probes import tls_context


@dataclass(frozen=True)
class Certificates:
    """Server contexts with a certificate that probes trust, or not; and the probes' own context."""

    trusted: ssl.SSLContext
    untrusted: ssl.SSLContext
    for_another_host: ssl.SSLContext
    prober: ssl.SSLContext
    ca_file: Path


def _server_context(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    authority, stranger = trustme.CA(), trustme.CA()
    ca_file = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(ca_file)
    return Certificates(
        trusted=_server_context(authority, "localhost", "127.0.0.1", "::1"),
        untrusted=_server_context(stranger, "localhost"),
        for_another_host=_server_context(authority, "elsewhere.example"),
        prober=tls_context(ca_file),
        ca_file=ca_file,
    )
