"""`make run` as a newcomer meets it: the README's commands, a killed proxy, Ctrl-C, `kill -9` and the run after it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import requests

ROOT = Path(__file__).parent.parent
MADE_HERE = (".git", ".venv", "var", "__pycache__", "*.pyc", ".*_cache", ".hypothesis")
"""What a checkout holds besides its files."""

SECONDS = 180
pytestmark = pytest.mark.timeout(600)


class Machine:
    """A checkout of its own, in which `make run` can be started and stopped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*MADE_HERE), dirs_exist_ok=True)
        (folder / ".venv").symlink_to(ROOT / ".venv")
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.address = f"127.0.0.1:{server.getsockname()[1]}"
        ours = ("PROXYFLEET_", "DJANGO", "MAKE", "MFLAGS")  # pytest's settings, and those of the make that runs it
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        self.environment = inherited | {"PROXYFLEET_DISCOVERY_ADDR": self.address}
        self.run: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """`make run` until it has told its story; returns what it printed."""
        with (self.folder / "run.log").open("wb") as output:
            self.run = subprocess.Popen(
                ["make", "run"],
                cwd=self.folder,
                env=self.environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        ends = ("Ctrl-C stops everything", "did not get through")
        wait_for(lambda: any(end in self.told() for end in ends) or self.run_ended(), SECONDS)
        told = self.told()
        assert ends[0] in told, told
        return told

    def run_ended(self) -> bool:
        assert self.run is not None
        return self.run.poll() is not None

    @property
    def supervisor(self) -> int:
        """`make` becomes it, or is its parent."""
        return int((self.folder / "var" / "lock").read_text())

    def interrupt(self) -> None:
        """Ctrl-C: the terminal tells the whole foreground group."""
        assert self.run is not None
        os.killpg(self.run.pid, signal.SIGINT)
        self.run.wait(60)

    def kill(self) -> None:
        assert self.run is not None
        os.kill(self.supervisor, signal.SIGKILL)
        self.run.wait(60)

    def processes(self) -> dict[int, str]:
        """Whatever runs out of this checkout, by pid."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                cwd = str((entry / "cwd").readlink())
            except OSError:
                continue
            if str(self.folder) in command or cwd.startswith(str(self.folder)):
                found[int(entry.name)] = command
        return found

    def proxy_processes(self) -> dict[int, str]:
        return {pid: command for pid, command in self.processes().items() if "/var/process/" in command}

    @property
    def token(self) -> str:
        return (self.folder / "var" / "api-token").read_text()

    def call(self, method: str, path: str, body: object = None) -> Any:
        answer = requests.request(
            method,
            f"http://{self.address}/v1/{path}",
            json=body,
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=10,
        )
        return answer.json() if answer.content else None

    def shell(self, script: str) -> str:
        trust = self.folder / "var" / "target" / "ca.pem"
        environment = dict(self.environment)
        if trust.exists():
            environment["CURL_CA_BUNDLE"] = str(trust)
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ran.returncode == 0, f"{script}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def told(self) -> str:
        return (self.folder / "run.log").read_text(errors="replace")

    def page(self) -> str:
        """What the story fetched."""
        found = re.search(r"fetched (\S+) through", self.told())
        assert found is not None
        return found[1]


class Admin:
    """A person in a browser, as far as forms go."""

    def __init__(self, machine: Machine) -> None:
        password = re.search(r"user admin, password (\S+) for this run", machine.told())
        assert password is not None
        self._site = f"http://{machine.address}/admin/"
        self._session = requests.Session()
        self._submit("login/", username="admin", password=password[1])

    def edit(self, name: str, **fields: str) -> None:
        listed = self._session.get(f"{self._site}fleet/proxy/?q={name.partition('/')[2]}", timeout=10).text
        found = re.search(r"/admin/fleet/proxy/(\d+)/change/", listed)
        assert found is not None
        self._submit(f"fleet/proxy/{found[1]}/edit/", **fields)

    def read(self, path: str) -> str:
        page = self._session.get(self._site + path, timeout=10)
        page.raise_for_status()
        return page.text

    def _submit(self, path: str, **fields: str) -> None:
        """Fill in the form at ``path``; a form that is refused comes again instead of a redirect."""
        page = self._session.get(self._site + path, timeout=10)
        page.raise_for_status()
        answer = self._session.post(
            self._site + path, data=Fields.of(page.text) | fields, allow_redirects=False, timeout=10
        )
        assert answer.status_code == 302, answer.text


class Fields(HTMLParser):
    """What the forms of a page hold."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, str] = {}
        self._open = ""

    @classmethod
    def of(cls, page: str) -> dict[str, str]:
        parser = cls()
        parser.feed(page)
        return parser.values

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        name = found.get("name") or ""
        if tag == "input" and name and found.get("type") not in ("submit", "checkbox"):
            self.values[name] = found.get("value") or ""
        elif tag in ("select", "textarea"):
            self._open = name
            self.values.setdefault(name, "")
        elif tag == "option" and "selected" in found:
            self.values[self._open] = found.get("value") or ""

    def handle_data(self, data: str) -> None:
        if self.lasttag == "textarea" and self._open:
            self.values[self._open] += data

    def handle_endtag(self, tag: str) -> None:
        if tag in ("select", "textarea"):
            self._open = ""


def wait_for(condition: Callable[[], Any], seconds: float) -> Any:
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.1)
    return result


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("checkout"))
    machine.start()
    yield machine
    if not machine.run_ended():
        machine.interrupt()
    assert machine.processes() == {}


def commands_of_the_readme() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return [block for block in blocks if "make " not in block]


def test_the_readme_starts_with_the_two_commands() -> None:
    first = re.search(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert first is not None
    assert [line.split("#")[0].strip() for line in first[1].splitlines()] == ["make run", "make test"]


def test_the_readmes_commands_do_what_it_says(machine: Machine) -> None:
    blocks = commands_of_the_readme()
    script = "\n".join(f"{block}\necho; echo --- {number}" for number, block in enumerate(blocks))
    script = script.replace("http://127.0.0.1:8090", f"http://{machine.address}")
    told = machine.shell(script.replace("https://example.com/", machine.page()))
    leased, fetched, reported, listed, released, declared = re.split(r"--- \d\n", told)[:6]
    lease = json.loads(leased)
    assert lease["proxy"]["phase"] == "Ready"
    assert "<title>" in fetched
    assert "cooldownUntil" in json.loads(reported)
    left = json.loads(listed)["items"]
    assert lease["proxy"]["id"] not in {proxy["id"] for proxy in left}, "it rests for the target that limited it"
    assert released.strip() == ""
    assert '"demo/' not in declared
    assert '"tier":"fast"' in declared
    wait_for(lambda: machine.call("GET", "proxies/default/mine").get("status") == 404, 30)


def test_a_killed_proxy_is_recreated_and_its_leases_end_with_a_cause(machine: Machine) -> None:
    lease = machine.call("POST", "leases", {"selector": {"geo": "local"}})
    name = lease["proxy"]["id"]
    before = machine.call("GET", f"proxies/{name}")
    [pid] = [pid for pid, command in machine.proxy_processes().items() if f" {before['ip']} " in command]
    os.kill(pid, signal.SIGKILL)
    after = wait_for(
        lambda: (
            (proxy := machine.call("GET", f"proxies/{name}"))["phase"] == "Ready"
            and proxy["ip"] != before["ip"]
            and proxy
        ),
        30,
    )
    history = [event["newPhase"] or event["kind"] for event in reversed(after["events"])]
    lost = len(history) - 1 - history[::-1].index("InstanceLost")
    assert history[lost:] == ["InstanceLost", "Provisioning", "InstanceCreated", "HealthChanged", "Ready"]
    ended = machine.call("GET", f"leases/{lease['leaseID']}")
    assert (ended["code"], ended["cause"]) == ("lease_ended", "instance_lost")


def test_a_port_edited_in_the_admin_replaces_the_proxy(machine: Machine) -> None:
    name = "demo/local-2"
    before = machine.call("GET", f"proxies/{name}")
    admin = Admin(machine)
    admin.edit(name, port="3333")
    after = wait_for(
        lambda: (
            (proxy := machine.call("GET", f"proxies/{name}"))["port"] == 3333 and proxy["phase"] == "Ready" and proxy
        ),
        30,
    )
    assert after["ip"] != before["ip"]
    history = [event["newPhase"] or event["kind"] for event in reversed(after["events"])]
    changed = len(history) - 1 - history[::-1].index("SpecChanged")
    steps = ["Replacing", "InstanceDeleted", "Provisioning", "InstanceCreated", "HealthChanged", "Ready"]
    assert history[changed + 1 :] == steps
    assert after["events"][len(steps)]["actor"] == "admin"


def test_the_backend_is_checked_from_the_start(machine: Machine) -> None:
    admin = Admin(machine)
    wait_for(lambda: "Healthy" in admin.read("fleet/providerstate/here/change/"), 30)


def test_an_external_proxy_that_refuses_connect_is_unhealthy_and_says_so(machine: Machine) -> None:
    refusing = subprocess.Popen(
        ["python3", "-m", "http.server", "--bind", "127.0.0.1", "0"],
        cwd=machine.folder / "docs",
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=machine.environment | {"PYTHONUNBUFFERED": "1"},
        text=True,
    )
    assert refusing.stdout is not None
    try:
        found = re.search(r"port (\d+)", refusing.stdout.readline())
        assert found is not None
        spec = {
            "mode": "External",
            "endpoint": {"host": "127.0.0.1"},
            "port": int(found[1]),
            "healthCheck": {"intervalSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 2},
        }
        machine.call("PUT", "proxies/default/refuses", spec)
        proxy = wait_for(
            lambda: (proxy := machine.call("GET", "proxies/default/refuses"))["phase"] == "Unhealthy" and proxy, 30
        )
        assert proxy["reason"] == "TunnelRefused"
    finally:
        machine.call("DELETE", "proxies/default/refuses")
        refusing.kill()
        refusing.communicate()


def test_a_second_run_says_which_process_runs_already(machine: Machine) -> None:
    second = subprocess.run(
        ["make", "run"],
        cwd=machine.folder,
        env=machine.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert second.returncode != 0
    assert f"Process {machine.supervisor} is already running" in second.stderr


def test_kill_9_leaks_nothing_and_the_next_run_keeps_the_proxies(machine: Machine) -> None:
    lease = machine.call("POST", "leases", {"selector": {"geo": "local"}})
    before = machine.proxy_processes()
    assert len(before) == 3
    machine.kill()
    wait_for(lambda: machine.processes().keys() <= before.keys(), 30)
    assert machine.proxy_processes() == before, "the proxies go on"
    machine.start()
    assert machine.proxy_processes() == before, "and are found again"
    assert machine.call("GET", f"leases/{lease['leaseID']}")["leaseID"] == lease["leaseID"]


def test_ctrl_c_leaves_nothing_behind_and_the_next_run_is_complete_again(machine: Machine) -> None:
    machine.interrupt()
    assert machine.processes() == {}
    assert machine.told().rstrip().endswith(f"Stopped; state is kept in {machine.folder / 'var'}.")
    told = machine.start()
    assert "[4/4]" in told
    assert "Leased demo/" in told
