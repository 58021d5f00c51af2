"""The first run's story: three proxies of this machine and an External one, until a page was fetched through a lease.

Runs beside the product and uses its API as a crawler would. Everything it declares is kept: the next run finds it.
"""

from __future__ import annotations

import os
import secrets
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from proxyfleet.local.addresses import Address
from proxyfleet.local.errors import LocalError

PATIENCE_SECONDS = 90
POLL_SECONDS = 0.25
NAMESPACE = "demo"
MANAGED = ("local-1", "local-2", "local-3")
EXTERNAL = "external"
PAGE_WITH_INTERNET = "https://example.com/"

LEASE = (
    'curl -sS -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" '
    """$API/v1/leases -d '{"selector": {"geo": "local"}}'"""
)
RELEASE = 'curl -sS -H "Authorization: Bearer $TOKEN" -X DELETE $API/v1/leases/<leaseID>'

PROVIDERS = """\
# Written by the first run. An entry's name is what a proxy's spec.provider refers to.
providers:
  - name: here
    type: process      # real proxy servers, as processes of this machine
    process: {}
"""


@dataclass(frozen=True, slots=True)
class Story:
    """What the first run needs to know of the deployment it runs in."""

    api: str
    token: str
    external: Address
    page: str
    """What is fetched through the leased proxy."""
    certificates: Path | None
    """Whom to trust for the page, besides the system's authorities."""
    password: str
    """The admin's, if it was just made."""

    def tell(self) -> None:
        """Declare, wait, lease, fetch, release, and print how to go on. Raises LocalError when a step fails."""
        self._declare()
        self._await_ready()
        lease = self._call("POST", "leases", {"ttlSeconds": 60, "selector": {"geo": "local"}, "client": "first run"})
        url = lease["proxy"]["url"]
        body = self._fetch(url)
        self._call("DELETE", f"leases/{lease['leaseID']}")
        _print("", f"Leased {lease['proxy']['id']}, fetched {self.page} through {url}: {len(body)} bytes. Released.")
        _print("", *self.doors(), "", *self._how_to_go_on())

    def _declare(self) -> None:
        """What is there already may have been edited, and stays as it is; but for the External one, which may move."""
        there = {proxy["id"] for proxy in self._list()}
        for name in MANAGED:
            if f"{NAMESPACE}/{name}" not in there:
                self._put(name, {"provider": "here", "attributes": {"geo": "local"}})
        endpoint = {"mode": "External", "endpoint": {"host": self.external.host}, "port": self.external.port}
        self._put(EXTERNAL, endpoint | {"attributes": {"geo": "elsewhere"}})

    def _put(self, name: str, spec: Mapping[str, Any]) -> None:
        """Faster probes than usual: a person is watching."""
        probes = {"intervalSeconds": 5, "timeoutSeconds": 5}
        self._call("PUT", f"proxies/{NAMESPACE}/{name}", {**spec, "healthCheck": probes})

    def _await_ready(self) -> None:
        names = {f"{NAMESPACE}/{name}" for name in (*MANAGED, EXTERNAL)}
        said: dict[str, str] = {}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            proxies = [proxy for proxy in self._list() if proxy["id"] in names]
            for proxy in proxies:
                reason = proxy["reason"] if proxy["phase"] != "Ready" else ""
                status = ": ".join(filter(None, (proxy["phase"], reason)))
                if said.get(proxy["id"]) != status:
                    said[proxy["id"]] = status
                    ready = sum(status == "Ready" for status in said.values())
                    _print(f"[{ready}/{len(names)}] {proxy['id']:<16} {proxy['ip'] or '':<16} {status}")
            if sum(status == "Ready" for status in said.values()) == len(names):
                return
            if time.monotonic() > deadline:
                waiting = ", ".join(f"{name} is {status}" for name, status in said.items() if status != "Ready")
                raise LocalError(f"Not all proxies were Ready after {PATIENCE_SECONDS} s: {waiting}.")
            time.sleep(POLL_SECONDS)

    def _list(self) -> Iterator[dict[str, Any]]:
        yield from self._call("GET", f"proxies?namespace={NAMESPACE}")["items"]

    def _call(self, method: str, path: str, body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = _session().request(method, f"{self.api}/v1/{path}", json=body, headers=headers, timeout=10)
        if not answer.ok:
            raise LocalError(f"{method} /v1/{path} was answered with {answer.status_code}: {answer.text}")
        return answer.json() if answer.content else None

    def _fetch(self, proxy: str) -> bytes:
        try:
            answer = _session().get(
                self.page, proxies={"http": proxy, "https": proxy}, verify=str(self.certificates or True), timeout=10
            )
            answer.raise_for_status()
        except requests.RequestException as error:
            raise LocalError(f"{self.page} can't be fetched through {proxy}: {error}") from error
        return answer.content

    def doors(self) -> list[str]:
        """Where people and programs come in, and how."""
        password = f"password {self.password} for this run" if self.password else "the password you chose"
        return [f"Admin   {self.api}/admin/   user admin, {password}", f"API     {self.api}/v1/docs"]

    def _how_to_go_on(self) -> list[str]:
        trust = f"--cacert {shlex.quote(str(self.certificates))} " if self.certificates else ""
        return [
            "Lease a proxy, use it, and give it back:",
            "",
            f"  export API={self.api} TOKEN={self.token}",
            f"  {LEASE}",
            f"  curl -sS {trust}-x <the proxy's url> {self.page}",
            f"  {RELEASE}",
            "",
            "Ctrl-C stops everything.",
        ]


def _session() -> requests.Session:
    """Of what the environment says of proxies, nothing is meant for us."""
    session = requests.Session()
    session.trust_env = False
    return session


def choose_password(var: Path) -> str:
    """A fresh password for the user `admin`; empty once a person has chosen one.

    The hash that was made here last is kept in ``var``: as long as it is still the user's, nobody has changed it.
    """
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "proxyfleet.settings")
    django.setup()
    from django.contrib.auth import get_user_model  # models exist from here on

    kept = var / "admin-password-hash"
    users = get_user_model().objects
    admin = users.filter(username="admin").first() or users.create_superuser("admin")
    if admin.has_usable_password() and not (kept.exists() and kept.read_text() == admin.password):
        return ""
    password = secrets.token_urlsafe(12)
    admin.set_password(password)
    admin.save(update_fields=["password"])
    kept.touch(mode=0o600)
    kept.write_text(admin.password)
    return password


def _print(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def main() -> None:
    """Told in the environment that `deployment` made. When the story fails, the product goes on without it."""
    certificates = os.environ.get("PROXYFLEET_PROBE_CA_FILE")
    story = Story(
        api=Address.parse(os.environ["PROXYFLEET_DISCOVERY_ADDR"]).local_url,
        token=os.environ["PROXYFLEET_DISCOVERY_TOKEN"],
        external=Address.parse(sys.argv[1]),
        page=sys.argv[2],
        certificates=Path(certificates) if certificates else None,
        password=choose_password(Path(os.environ["PROXYFLEET_STATE_DIR"])),
    )
    try:
        story.tell()
    except (LocalError, requests.RequestException) as error:
        _print(f"The first run did not get through: {error}", "The product runs on; the lines above tell more.")
        _print("", *story.doors())


if __name__ == "__main__":
    main()
