"""One kind of object, followed and handed to its handler: a reflector and the deliveries of what it sees."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from k8s_sync.client import ApiServer, Object
from k8s_sync.crew import Crew
from k8s_sync.deliveries import Deliveries
from k8s_sync.kinds import Kind
from k8s_sync.reflector import Reflector
from k8s_sync.store import ObjectStore, uid_of


class Feed:
    def __init__(
        self,
        api: ApiServer,
        kind: Kind,
        handle: Callable[[str, Object | None], None],
        *,
        known: Callable[[], Iterable[str]],
        namespace: str | None = None,
        labels: str = "",
        key: Callable[[Object], str] = uid_of,
    ) -> None:
        self._name = " ".join(filter(None, (kind.plural, labels)))
        self._reflector = Reflector(
            api,
            kind,
            changed=lambda key: self.deliveries.add(key),
            listed=lambda: self.deliveries.resync(),
            namespace=namespace,
            labels=labels,
            key=key,
        )
        self.deliveries = Deliveries(self._reflector.store, handle, known=known)

    @property
    def objects(self) -> ObjectStore:
        return self._reflector.store

    @property
    def has_listed(self) -> bool:
        return self._reflector.wait_until_listed(0)

    @property
    def problem(self) -> str:
        """What keeps it from hearing of changes; empty when nothing does."""
        return self._reflector.problem

    @property
    def is_complete(self) -> bool:
        """Everything that the cluster holds was handled, and whatever comes will be heard of."""
        return self._reflector.is_current and self.deliveries.is_idle

    def join(self, crew: Crew, *, after: Callable[[], None] = lambda: None) -> None:
        """Two threads of ``crew``; nothing is followed before ``after`` has returned."""

        def follow() -> None:
            after()
            self._reflector.run()

        crew.add(f"follow {self._name}", follow, stop=self._reflector.stop)
        crew.add(f"handle {self._name}", self.deliveries.run, stop=self.deliveries.stop)
