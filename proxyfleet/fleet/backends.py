"""The configured providers of this process."""

from functools import cache

from providers.config import EXTERNAL, load_providers_config
from providers.registry import Providers
from proxyfleet.conf import settings
from proxyfleet.fleet.observed import ObservedProviders


@cache
def providers() -> Providers:
    conf = settings()
    return ObservedProviders(
        load_providers_config(conf.providers_config), fleet_id=conf.fleet_id, state_dir=conf.state_dir
    )


def lane_of(entry: str, configured: frozenset[str]) -> str:
    """The lane that works on proxies of ``entry``: those of no configured entry go with the External ones."""
    return entry if entry in configured else EXTERNAL
