"""The stand-in refuses what Compute Engine refuses: a driver that passes on it has really been checked."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from google.auth import crypt, jwt

from providers.gcp.tests.standin.accounts import AUDIENCE
from providers.gcp.tests.standin.backend import GceBackend
from providers.gcp.tests.standin.server import ComputeServer

Json = dict[str, Any]
INSTANCES = "compute/v1/projects/test-project/zones/europe-west1-b/instances"
AGGREGATED = "compute/v1/projects/test-project/aggregated/instances"


def token(key_file: Path, **claims: object) -> str:
    signer = crypt.RSASigner.from_service_account_file(str(key_file))  # type: ignore[no-untyped-call]  # google-auth's
    account = json.loads(key_file.read_text())["client_email"]
    now = int(time.time())
    payload = {"iss": account, "sub": account, "aud": AUDIENCE, "iat": now, "exp": now + 3600} | claims
    return str(jwt.encode(signer, payload).decode())  # type: ignore[no-untyped-call]  # google-auth's


@pytest.fixture
def ask(backend: GceBackend, server: ComputeServer) -> Callable[..., requests.Response]:
    def ask(verb: str, path: str, body: Json | None = None, **query: str) -> requests.Response:
        headers = {"Authorization": f"Bearer {token(backend.key_file)}"}
        return requests.request(verb, f"{server.url}/{path}", json=body, params=query, headers=headers, timeout=10)

    return ask


def instance(**fields: object) -> Json:
    return {
        "name": "vm-1",
        "machineType": "zones/europe-west1-b/machineTypes/e2-small",
        "disks": [{"boot": True, "initializeParams": {"sourceImage": "global/images/squid", "diskSizeGb": "10"}}],
        "networkInterfaces": [{"network": "global/networks/default"}],
    } | fields


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"name": "Not-A-Name"},
        {"name": "x" * 64},
        {"nmae": "vm-2"},
        {"status": "RUNNING"},
        {"id": "1"},
        {"labels": {"Key": "value"}},
        {"labels": {"key": "v" * 64}},
        {"labels": {"key": "a.b"}},
        {"labels": {f"key-{number}": "" for number in range(65)}},
        {"tags": {"items": ["1-tag"]}},
        {"metadata": {"items": [{"key": "a.b", "value": ""}]}},
        {"metadata": {"items": [{"key": "a", "value": "x" * 262_145}]}},
        {"metadata": {"items": [{"key": key, "value": "x" * 262_144} for key in "ab"]}},
        {"metadata": {"items": [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]}},
        {"disks": [{"boot": True, "initializeParams": {"sourceImage": "global/images/squid", "diskSizeGb": 10}}]},
        {"disks": [{"boot": "true"}]},
        {"disks": []},
        {"networkInterfaces": []},
        {"networkInterfaces": [{"network": "global/networks/default", "accessConfigs": [{"type": "NAT"}]}]},
        {"scheduling": {"provisioningModel": "CHEAP"}},
    ],
    ids=lambda fields: str(fields)[:40],
)
def test_an_instance_that_is_not_as_described_is_refused(
    ask: Callable[..., requests.Response], backend: GceBackend, fields: Json
) -> None:
    answer = ask("POST", INSTANCES, instance(**fields))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, 400), answer.text
    assert not backend.cloud.machines
    assert ask("POST", INSTANCES, instance()).status_code == 200


@pytest.mark.parametrize(
    "query",
    [
        {"returnPartialSuccess": "true"},
        {"maxResults": "501"},
        {"includeAllScopes": "1"},
        {"filter": "labels.a eq b"},
        {"requestId": "00000000-0000-0000-0000-000000000000"},
    ],
    ids=str,
)
def test_a_query_that_is_not_as_described_is_refused(ask: Callable[..., requests.Response], query: Json) -> None:
    assert ask("GET", AGGREGATED, **query).status_code == 400
    assert ask("GET", AGGREGATED, maxResults="500", filter='(labels.a = "b")').status_code == 200


def test_other_calls_do_not_exist(ask: Callable[..., requests.Response]) -> None:
    assert ask("GET", INSTANCES).status_code == 404
    assert ask("POST", f"{INSTANCES}/vm-1/stop", {}).status_code == 404


@pytest.mark.parametrize(
    "claims", [{"aud": "https://storage.googleapis.com/"}, {"exp": 1}, {"iss": "someone@else"}, {"iat": 4_000_000_000}]
)
def test_a_token_that_does_not_hold_is_refused(backend: GceBackend, server: ComputeServer, claims: Json) -> None:
    for good, header in ((False, token(backend.key_file, **claims)), (False, "x.y.z"), (True, token(backend.key_file))):
        headers = {"Authorization": f"Bearer {header}"}
        answer = requests.get(f"{server.url}/{AGGREGATED}", headers=headers, timeout=10)
        assert (answer.status_code == 200) is good
    assert requests.get(f"{server.url}/{AGGREGATED}", timeout=10).status_code == 401
