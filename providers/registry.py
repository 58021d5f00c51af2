"""From the name of an entry to its driver, which is imported only when an entry uses it.

A missing system library thus fails the entries of one type, with a message that says what to install, and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import cast

from providers.base import BehaviourProfile, Provider
from providers.config import ProviderEntry, ProvidersConfig
from providers.errors import Misconfigured
from providers.profiles import profile_of


@dataclass(frozen=True, slots=True)
class Driver:
    """Where the class of a provider type lives, and what must be there for it to be imported.

    The class is called with ``entry``, ``block``, ``fleet_id`` and ``state_dir`` and must do no I/O in its constructor.
    """

    module: str
    class_name: str
    needs: str


LIBVIRT = "libvirt-python: apt install libvirt-dev pkg-config gcc, then pip install -r requirements-kvm.txt"

DRIVERS: Mapping[str, Driver] = {
    "gcp": Driver("providers.gcp.driver", "GcpProvider", needs="the google-cloud-compute package"),
    "kvm": Driver("providers.libvirt.driver", "KvmProvider", needs=LIBVIRT),
    "kvm2": Driver("providers.libvirt.driver", "Kvm2Provider", needs=LIBVIRT),
    "proxmox": Driver("providers.proxmox.driver", "ProxmoxProvider", needs="the package requests"),
    "process": Driver("providers.process.driver", "ProcessProvider", needs="a POSIX system (Linux, macOS or WSL)"),
    "kubernetes": Driver("providers.kubernetes.driver", "KubernetesProvider", needs="PyPI's kubernetes"),
}


class UnknownProvider(LookupError):
    """The providers file has no entry of this name. No ProviderError: no backend was asked, so nothing is known."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the providers file has no entry {name!r}")
        self.name = name


class Providers:
    """The configured entries, each built on first use and once per process. Safe to share between threads."""

    def __init__(
        self,
        config: ProvidersConfig,
        *,
        fleet_id: str,
        state_dir: Path,
        drivers: Mapping[str, Driver] = DRIVERS,
    ) -> None:
        """``fleet_id`` marks what is ours in every backend; ``state_dir`` is where a driver may keep files."""
        self._config = config
        self._fleet_id = fleet_id
        self._state_dir = state_dir
        self._drivers = drivers
        self._built: dict[str, Provider] = {}
        self._lock = Lock()

    def names(self) -> tuple[str, ...]:
        return tuple(self._config.entries)

    def entry(self, name: str) -> ProviderEntry:
        """Raises UnknownProvider."""
        try:
            return self._config.entries[name]
        except KeyError:
            raise UnknownProvider(name) from None

    def profile(self, name: str) -> BehaviourProfile:
        """How the driver of an entry behaves, without importing it; an entry that is not configured is assumed slow."""
        entry = self._config.entries.get(name)
        return profile_of(entry.type if entry else "")

    def get(self, name: str) -> Provider:
        """Raises UnknownProvider, or Misconfigured when the driver is not there; a later call tries again."""
        entry = self.entry(name)
        with self._lock:
            if name not in self._built:
                self._built[name] = self._build(entry)
            return self._built[name]

    def _build(self, entry: ProviderEntry) -> Provider:
        driver = self._drivers.get(entry.type)
        if driver is None:
            raise Misconfigured(f"provider {entry.name!r}: this version has no driver for type {entry.type!r} yet")
        try:
            driver_class = getattr(import_module(driver.module), driver.class_name)
        except ImportError as error:
            raise Misconfigured(
                f"provider {entry.name!r}: type {entry.type!r} needs {driver.needs}", detail=f"{driver.module}: {error}"
            ) from error
        provider = driver_class(entry=entry.name, block=entry.block, fleet_id=self._fleet_id, state_dir=self._state_dir)
        return cast("Provider", provider)


def entry_of(provider_id: str) -> str:
    """The name of the entry that made the instance. Raises ValueError when this is no providerID."""
    name, separator, rest = provider_id.partition("://")
    if not (name and separator and rest):
        raise ValueError(f"{provider_id!r} is no providerID: it must read <entry>://…")
    return name
