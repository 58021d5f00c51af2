"""Providers whose calls are measured and traced, whoever makes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import cast

from providers.base import Provider
from providers.errors import ProviderError
from providers.instances import Instance, InstanceList, InstanceRequest, TargetCheck
from providers.registry import Providers
from proxyfleet.observability import metrics, tracing


class ObservedProviders(Providers):
    def get(self, name: str) -> Provider:
        return cast("Provider", _Observed(name, super().get(name)))


class _Observed:
    """Passes every call on to the driver of an entry."""

    def __init__(self, entry: str, driver: Provider) -> None:
        self._entry = entry
        self._driver = driver
        self.profile = driver.profile

    def create(self, request: InstanceRequest) -> Instance:
        with self._call("create"):
            return self._driver.create(request)

    def get(self, provider_id: str) -> Instance:
        with self._call("get"):
            return self._driver.get(provider_id)

    def delete(self, provider_id: str) -> None:
        with self._call("delete"):
            self._driver.delete(provider_id)

    def list(self) -> InstanceList:
        with self._call("list"):
            return self._driver.list()

    def check(self) -> Iterable[TargetCheck]:
        with self._call("check"):
            yield from self._driver.check()

    @contextmanager
    def _call(self, call: str) -> Iterator[None]:
        result = "error"
        with (
            tracing.span(f"provider {call}", provider=self._entry),
            metrics.timed(lambda seconds: metrics.provider_calls.labels(self._entry, call, result).observe(seconds)),
        ):
            try:
                yield
            except ProviderError as error:
                result = error.reason
                raise
            result = "ok"
