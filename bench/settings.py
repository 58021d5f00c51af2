"""The product's settings, with the no-op calls beside its own."""

from proxyfleet.settings import *  # noqa: F403  all of them, whatever they are

ROOT_URLCONF = "bench.urls"
