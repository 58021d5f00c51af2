"""Files of a host's storage pool: the disks and seeds of guests, and the base images."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from xml.etree.ElementTree import Element, SubElement, fromstring, tostring

import libvirt

from providers.errors import Misconfigured, ProviderError, Unavailable
from providers.libvirt.connections import Session
from providers.libvirt.errors import Code, PoolNotFound

FILE_POOLS = frozenset({"dir", "fs", "netfs"})
CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class VolumeState:
    """How long a file is, in bytes, and when it was last written to, in seconds of the host's clock."""

    size: int
    mtime: str

    @property
    def modified_at(self) -> datetime:
        return datetime.fromtimestamp(float(self.mtime), UTC)


class Pool:
    """The pool that a host's entry names, for one session."""

    def __init__(self, session: Session) -> None:
        """Raises PoolNotFound, or Misconfigured when its volumes are no files."""
        self._session = session
        name = session.host.pool
        found = session.find(session.connection.storagePoolLookupByName, name, missing=Code.NO_STORAGE_POOL)
        if found is None or not session.rpc(found.isActive):
            state = "no" if found is None else "an inactive"
            raise PoolNotFound(f"host {session.host.name} has {state} storage pool {name}")
        self._pool: Any = found
        description = fromstring(session.rpc(found.XMLDesc))  # noqa: S314 - libvirt wrote it
        if description.get("type") not in FILE_POOLS:
            kind = description.get("type")
            raise Misconfigured(f"pool {name} of host {session.host.name} is of type {kind}; it must hold files")
        self._folder = description.findtext("target/path", "")

    def path_of(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def available(self) -> int:
        """Bytes that are free, as the file system says now."""
        with contextlib.suppress(ProviderError):  # refused while another volume is being built
            self._session.rpc(self._pool.refresh, 0)
        return int(self._session.rpc(self._pool.info)[3])

    def state(self, name: str) -> VolumeState | None:
        description = self._describe(name)
        if description is None:
            return None
        return VolumeState(
            size=int(description.findtext("physical") or description.findtext("capacity") or 0),
            mtime=description.findtext("target/timestamps/mtime", "0"),
        )

    def is_overlay(self, name: str) -> bool:
        """Whether an overlay of this name is complete: it is made in two steps, of which libvirt shows the first."""
        description = self._describe(name)
        return description is not None and description.find("backingStore/path") is not None

    def create_file(self, name: str) -> bool:
        """An empty file that an upload fills; False when there is one of that name already."""
        return self._create(_volume(name, capacity=1, kind="raw"))

    def create_overlay(self, name: str, *, base: str, base_format: str, capacity: int) -> bool:
        """A qcow2 that holds what a guest writes over ``base``; False when there is one of that name already."""
        volume = _volume(name, capacity=capacity, kind="qcow2")
        backing = SubElement(volume, "backingStore")
        SubElement(backing, "path").text = base
        SubElement(backing, "format", type=base_format)
        return self._create(volume)

    def upload(self, name: str, chunks: Iterable[bytes]) -> None:
        """Fill the file from its start. What ``chunks`` raises ends the upload; what has been written stays."""
        volume = self._find(name)
        if volume is None:
            raise Unavailable(f"a volume on host {self._session.host.name} vanished", detail=f"{name} is gone")
        stream = self._session.rpc(self._session.connection.newStream, 0)
        self._session.rpc(volume.upload, stream, 0, 0, 0)
        try:
            for chunk in chunks:
                self._session.send(stream, chunk)
            self._session.rpc(stream.finish)
        except BaseException:
            with contextlib.suppress(libvirt.libvirtError):
                stream.abort()
            raise

    def read(self, name: str) -> bytes | None:
        """The whole content of a small file; None when there is none."""
        volume = self._find(name)
        if volume is None:
            return None
        stream = self._session.rpc(self._session.connection.newStream, 0)
        self._session.rpc(volume.download, stream, 0, 0, 0)
        content = io.BytesIO()
        while chunk := self._session.rpc(stream.recv, CHUNK):
            content.write(chunk)
        self._session.rpc(stream.finish)
        return content.getvalue()

    def delete(self, name: str) -> None:
        """Repeatable: one that is gone is a success."""
        volume = self._find(name)
        if volume is not None:
            self._session.find(volume.delete, 0, missing=Code.NO_STORAGE_VOL)

    def _describe(self, name: str) -> Element | None:
        volume = self._find(name)
        text = volume and self._session.find(volume.XMLDesc, missing=Code.NO_STORAGE_VOL)
        return fromstring(text) if text else None  # noqa: S314 - libvirt wrote it

    def _find(self, name: str) -> Any | None:
        return self._session.find(self._pool.storageVolLookupByName, name, missing=Code.NO_STORAGE_VOL)

    def _create(self, volume: Element) -> bool:
        text = tostring(volume, encoding="unicode")
        return self._session.find(self._pool.createXML, text, 0, missing=Code.STORAGE_VOL_EXISTS) is not None


def _volume(name: str, *, capacity: int, kind: str) -> Element:
    volume = Element("volume")
    SubElement(volume, "name").text = name
    SubElement(volume, "capacity", unit="bytes").text = str(capacity)
    SubElement(volume, "allocation", unit="bytes").text = "0"
    SubElement(SubElement(volume, "target"), "format", type=kind)
    return volume
