"""What libvirt refuses becomes what the reconciler acts on; its own words go to the operator alone."""

from __future__ import annotations

import pytest

from providers.errors import (
    AuthenticationFailed,
    InstanceNotFound,
    InvalidRequest,
    Misconfigured,
    PermissionDenied,
    ProviderError,
    QuotaExceeded,
    Unavailable,
)
from providers.libvirt.errors import Code, NetworkNotFound, PoolNotFound, Timeout, Unreachable, translate


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        (Code.NO_DOMAIN, "Domain not found", InstanceNotFound),
        (Code.NO_STORAGE_POOL, "Storage pool not found", PoolNotFound),
        (Code.NO_NETWORK, "Network not found", NetworkNotFound),
        (Code.AUTH_FAILED, "authentication failed", AuthenticationFailed),
        (Code.ACCESS_DENIED, "access denied", PermissionDenied),
        (Code.SYSTEM_ERROR, "cannot extend file '/pool/a': No space left on device", QuotaExceeded),
        (1, "cannot set up guest memory 'pc.ram': Cannot allocate memory", QuotaExceeded),
        (Code.CONFIG_UNSUPPORTED, "unable to find any firmware", Misconfigured),
        (Code.INVALID_ARGUMENT, "could not get preferred machine", InvalidRequest),
        (Code.OPERATION_TIMEOUT, "cannot acquire state change lock", Timeout),
        (Code.RPC, "packet 1416128883 bytes received from server too large", Unreachable),
        (Code.SYSTEM_ERROR, "Cannot recv data: Connection reset by peer", Unavailable),
        (4711, "a number of a later libvirt", Unavailable),
    ],
)
def test_each_refusal_has_its_class(code: int, text: str, expected: type[ProviderError]) -> None:
    error = translate(code, text, host="host1", call="virDomain.create")
    assert type(error) is expected
    assert "host1" in str(error)
    assert text not in str(error)
    assert text in error.detail
    assert "virDomain.create" in error.detail
