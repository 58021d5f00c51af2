"""Drivers are loaded one by one, and one that can't be loaded harms no other entry."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from providers.blocks import GcpBlock, ProcessBlock
from providers.config import ProviderEntry, ProvidersConfig
from providers.errors import Misconfigured
from providers.registry import DRIVERS, Driver, Providers, UnknownProvider, entry_of

CONFIG = ProvidersConfig(
    {
        "here": ProviderEntry("here", "process", ProcessBlock()),
        "gcp-eu": ProviderEntry("gcp-eu", "gcp", GcpBlock(project="my-project")),
    }
)


@pytest.fixture
def providers(tmp_path: Path) -> Providers:
    return Providers(CONFIG, fleet_id="f1", state_dir=tmp_path)


def test_entries_are_known_by_name_in_the_files_order(providers: Providers) -> None:
    assert providers.names() == ("here", "gcp-eu")
    assert providers.entry("gcp-eu").type == "gcp"


def test_a_provider_is_built_once(providers: Providers) -> None:
    with ThreadPoolExecutor(8) as pool:
        built = list(pool.map(providers.get, ["here"] * 32))
    assert len({id(provider) for provider in built}) == 1


def test_building_a_provider_touches_nothing(providers: Providers, tmp_path: Path) -> None:
    providers.get("here")
    assert not list(tmp_path.iterdir())


def test_an_unknown_entry_is_named(providers: Providers) -> None:
    for ask in (providers.get, providers.entry):
        with pytest.raises(UnknownProvider, match="'gone'"):
            ask("gone")


def test_a_type_without_a_driver_fails_its_own_entry_alone(tmp_path: Path) -> None:
    drivers = {"process": DRIVERS["process"]}
    providers = Providers(CONFIG, fleet_id="f1", state_dir=tmp_path, drivers=drivers)
    with pytest.raises(Misconfigured, match="'gcp-eu': this version has no driver for type 'gcp'"):
        providers.get("gcp-eu")
    assert providers.get("here")


def test_a_missing_library_says_what_to_install_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cloud_driver.py").write_text(
        "import a_cloud_sdk\nclass Cloud:\n    def __init__(self, **settings): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    drivers = {**DRIVERS, "gcp": Driver("cloud_driver", "Cloud", needs="the a-cloud-sdk package")}
    providers = Providers(CONFIG, fleet_id="f1", state_dir=tmp_path, drivers=drivers)

    with pytest.raises(Misconfigured, match="'gcp' needs the a-cloud-sdk package") as caught:
        providers.get("gcp-eu")
    assert "No module named 'a_cloud_sdk'" in caught.value.detail

    (tmp_path / "a_cloud_sdk.py").touch()
    assert providers.get("gcp-eu")
    for module in ("cloud_driver", "a_cloud_sdk"):
        monkeypatch.delitem(sys.modules, module)


def test_drivers_are_imported_only_when_used(providers: Providers, monkeypatch: pytest.MonkeyPatch) -> None:
    module = DRIVERS["process"].module
    monkeypatch.delitem(sys.modules, module, raising=False)
    providers.entry("here")
    assert module not in sys.modules
    providers.get("here")
    assert module in sys.modules


@pytest.mark.parametrize("provider_id", ["", "here", "here://", "://x", "here:/x"])
def test_what_is_no_provider_id_is_refused(provider_id: str) -> None:
    with pytest.raises(ValueError, match="no providerID"):
        entry_of(provider_id)


def test_a_provider_id_names_its_entry() -> None:
    assert entry_of("gcp-eu://project/zone/name") == "gcp-eu"
