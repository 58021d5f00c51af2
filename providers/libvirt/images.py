"""The base images of a host: in its pool complete, or as good as absent.

A base is a volume and, beside it, a small mark that is written once every byte is there and was verified. No guest is
made from a base without its mark. Whoever creates the volume fetches it; libvirt refuses a second of the same name, so
there is one fetch at a time for a host and an image, wherever the workers run. A fetch that died leaves a volume that
no longer changes; the next worker that sees this for a while removes it and starts again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from providers.blocks import LibvirtHost
from providers.errors import Misconfigured, ProviderError, QuotaExceeded, Unavailable
from providers.libvirt.connections import Connections, Session
from providers.libvirt.sources import STALL_SECONDS, Download, Image, download
from providers.libvirt.volumes import Pool, VolumeState

logger = logging.getLogger(__name__)

QUIET_SECONDS = 30.0
"""A host that takes no part of an upload for so long is given up; a source may be silent for a part of it."""

ABANDONED_SECONDS = 3 * STALL_SECONDS
"""A fetch that is alive has either written or ended within this time."""

RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Base:
    """A complete base image on one host."""

    path: str
    format: str
    virtual_size: int


@dataclass(frozen=True, slots=True)
class Mark:
    """What the mark says of the base beside it."""

    entry: str
    source: str
    sha256: str
    virtual_size: int
    state: VolumeState
    """Of the base when it was complete: one that was put in its place since has another."""

    @classmethod
    def from_json(cls, text: bytes) -> Mark:
        """Raises ValueError, KeyError or TypeError when a crash cut it short."""
        raw = json.loads(text)
        state = VolumeState(size=raw["size"], mtime=raw["mtime"])
        return cls(raw["entry"], raw["source"], raw["sha256"], raw["virtualSize"], state)

    def to_json(self) -> bytes:
        return json.dumps(
            {
                "entry": self.entry,
                "source": self.source,
                "sha256": self.sha256,
                "virtualSize": self.virtual_size,
                "size": self.state.size,
                "mtime": self.state.mtime,
            }
        ).encode()


class BaseImages:
    """The bases that one entry keeps on its hosts."""

    def __init__(
        self,
        *,
        entry: str,
        connections: Connections,
        name_of: Callable[[str, Image], str],
        reserve_bytes: int | None,
    ) -> None:
        """``reserve_bytes`` must be free beside an image before it is fetched; None leaves that to the host."""
        self._entry = entry
        self._connections = connections
        self._name_of = name_of
        self._reserve_bytes = reserve_bytes
        self._unfinished: dict[tuple[str, str], tuple[VolumeState, float]] = {}

    def ensure(self, host: LibvirtHost, image: Image, *, deadline: float) -> Base:
        """The base of ``image`` on ``host``, fetched if need be. ``deadline`` is a ``time.monotonic()``.

        Raises Unavailable while another worker fetches it or when the source fails, Misconfigured when there is another
        image of this name, or the source has not what it should; QuotaExceeded when it does not fit.
        """
        name = self._name_of(self._entry, image)
        with self._connections.session(host, seconds=QUIET_SECONDS) as session:
            pool = Pool(session)
            mark = _read_mark(pool, name)
            if mark is None:
                self._check_space(pool, host)
                self._claim(pool, host, name)
                mark = self._fetch(session, pool, name, image, deadline)
            self._verify(mark, host, name, image)
            return Base(pool.path_of(name), image.format, mark.virtual_size)

    def _claim(self, pool: Pool, host: LibvirtHost, name: str) -> None:
        """Become the one who fetches. Raises Unavailable while someone else is."""
        if pool.create_file(name):
            return
        seen = pool.state(name)
        first, since = self._unfinished.get((host.name, name), (None, 0.0))
        if seen is None or seen != first:
            first, since = seen, time.monotonic()
        if first is not None and time.monotonic() - since >= ABANDONED_SECONDS:
            del self._unfinished[host.name, name]
            logger.warning("The fetch of %s on host %s was abandoned; it is started again", name, host.name)
            pool.delete(name)
            if pool.create_file(name):
                return
        elif first is not None:
            self._unfinished[host.name, name] = (first, since)
        raise Unavailable(
            "the image is being fetched by another worker",
            detail=f"volume {name} on host {host.name} is not complete yet",
            retry_after=RETRY_SECONDS,
        )

    def _fetch(self, session: Session, pool: Pool, name: str, image: Image, deadline: float) -> Mark:
        logger.info("Fetching image %s into %s on host %s", image.key, name, session.host.name)
        try:
            with download(image, deadline=deadline) as source:
                self._check_space(pool, session.host, image_bytes=source.announced or 0)
                pool.upload(name, _watched(source, session))
            state = pool.state(name)
            if state is None or state.size != source.received:
                self._check_whether_full(pool, session.host, missing=source.received - (state.size if state else 0))
                raise Unavailable(
                    f"host {session.host.name} did not keep the whole of image {image.key}",
                    detail=f"volume {name}: {state and state.size} of {source.received} bytes",
                )
            mark = Mark(self._entry, _fingerprint(image.url), source.sha256, source.virtual_size, state)
            pool.delete(_mark_of(name))  # that of an earlier base
            pool.create_file(_mark_of(name))
            pool.upload(_mark_of(name), [mark.to_json()])
        except ProviderError:
            # On a host that no longer answers this fails as well; the volume is then found abandoned.
            with suppress(ProviderError):
                pool.delete(name)
            raise
        return mark

    def _check_space(self, pool: Pool, host: LibvirtHost, *, image_bytes: int = 0) -> None:
        if self._reserve_bytes is None:
            return
        need, free = image_bytes + self._reserve_bytes, pool.available()
        if free < need:
            raise no_space(host, need=need, free=free)

    def _check_whether_full(self, pool: Pool, host: LibvirtHost, *, missing: int) -> None:
        """Of a full pool libvirt tells at the end of the upload, or not at all: that depends on who is quicker."""
        if missing > 0 and (free := pool.available()) < missing:
            raise no_space(host, need=missing, free=free)

    def _verify(self, mark: Mark, host: LibvirtHost, name: str, image: Image) -> None:
        """A base may be the disk of running guests: what is not the image that is asked for is left as it is."""
        differs = None
        if mark.entry != self._entry:
            differs = f"belongs to entry {mark.entry!r}"
        elif image.sha256 is not None and mark.sha256 != image.sha256:
            differs = f"has sha256 {mark.sha256}, images.{image.key} says {image.sha256}"
        elif mark.source != _fingerprint(image.url):
            differs = f"was fetched from another URL than that of image {image.key}"
        if differs:
            raise Misconfigured(
                f"host {host.name} has another image in the place of {image.key}",
                detail=f"volume {name} on host {host.name} {differs}; give the new image another key, or delete the "
                f"volume and {_mark_of(name)} by hand once no guest needs them",
            )


def no_space(host: LibvirtHost, *, need: int, free: int) -> QuotaExceeded:
    gib = 1 << 30
    return QuotaExceeded(
        f"storage pool {host.pool} of host {host.name} is full",
        detail=f"pool {host.pool} of host {host.name}: {free / gib:.1f} GiB free, {need / gib:.1f} GiB needed",
    )


def name_by_source(entry: str, image: Image) -> str:
    """A volume for each image that was ever asked for: another URL, digest or format is another volume."""
    source = hashlib.sha256(f"{image.url} {image.sha256} {image.format}".encode()).hexdigest()
    return f"proxyfleet-{entry}-{source[:16]}.{image.format}"


def name_by_key(entry: str, image: Image) -> str:
    """A volume for each key of ``images``: what it holds can be read off, and must not change under the same key."""
    return f"base-{entry}-{image.key}.{image.format}"


def _watched(source: Download, session: Session) -> Iterator[bytes]:
    """A host that takes a part in time gets time for the next; one that does not is left, and so is its upload."""
    for chunk in source.chunks():
        session.extend(QUIET_SECONDS)
        yield chunk
    session.extend(QUIET_SECONDS)


def _read_mark(pool: Pool, name: str) -> Mark | None:
    """None when there is no complete base."""
    state = pool.state(name)
    text = pool.read(_mark_of(name)) if state else None
    if text is None:
        return None
    try:
        mark = Mark.from_json(text)
    except (ValueError, KeyError, TypeError):
        return None
    return mark if mark.state == state else None


def _mark_of(name: str) -> str:
    return f"{name}.complete"


def _fingerprint(url: str) -> str:
    """The mark lies on a host, and a URL may be signed: it says whether the URL is the same, not what it is."""
    return hashlib.sha256(url.encode()).hexdigest()
