"""A disk image from a URL, as a stream that raises before its end unless every byte came and is the right one."""

from __future__ import annotations

import hashlib
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from providers.errors import Misconfigured, Unavailable

STALL_SECONDS = 20.0
"""A source that sends nothing for this long is given up."""

CHUNK = 1 << 18
QCOW2_MAGIC = b"QFI\xfb"
HEADER_BYTES = 80
EXTERNAL_DATA = 1 << 2


@dataclass(frozen=True, slots=True)
class Image:
    """What ``images`` of an entry, or a URL in the spec, says."""

    key: str
    """How messages and volumes call it."""
    url: str
    sha256: str | None
    format: Literal["qcow2", "raw"]
    firmware: Literal["uefi", "bios"]


class Download:
    """A response that is under way. Read ``chunks`` once, to the end; only then are the other facts complete."""

    def __init__(self, image: Image, response: http.client.HTTPResponse, deadline: float) -> None:
        self._image = image
        self._response = response
        self._deadline = deadline
        self._digest = hashlib.sha256()
        self._header = b""
        self.received = 0
        length = response.headers.get("Content-Length")
        self.announced = int(length) if length and length.isdecimal() else None
        """Bytes that the source says it will send."""

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    @property
    def virtual_size(self) -> int:
        """Bytes of the disk that a guest sees."""
        if self._image.format == "raw":
            return self.received
        return int.from_bytes(self._header[24:32], "big")

    def chunks(self) -> Iterator[bytes]:
        """Raises Unavailable when the source stalls or breaks, Misconfigured when what it sent is not the image."""
        while chunk := self._read():
            if self.received < HEADER_BYTES:
                self._header = (self._header + chunk)[:HEADER_BYTES]
            self._digest.update(chunk)
            self.received += len(chunk)
            yield chunk
        if self.announced is not None and self.received != self.announced:
            raise Unavailable(
                f"the source of image {self._image.key} broke off",
                detail=f"{self._image.url}: {self.received} of {self.announced} bytes came",
            )
        if self._image.sha256 is not None and self.sha256 != self._image.sha256:
            raise Misconfigured(
                f"the source of image {self._image.key} sent another image than its sha256 says",
                detail=f"{self._image.url}: sha256 is {self.sha256}, configured is {self._image.sha256}",
            )
        if self._image.format == "qcow2" and not self._header.startswith(QCOW2_MAGIC):
            raise Misconfigured(
                f"the source of image {self._image.key} sent no qcow2 image",
                detail=f"{self._image.url}: {self.received} bytes that do not start as a qcow2 does",
            )
        if self._image.format == "qcow2" and _names_other_files(self._header):
            raise Misconfigured(
                f"image {self._image.key} is a part of another one",
                detail=f"{self._image.url}: it names a backing or data file, which the host would open for the guest",
            )

    def _read(self) -> bytes:
        if time.monotonic() > self._deadline:
            raise Unavailable(
                f"image {self._image.key} did not come in time",
                detail=f"{self._image.url}: {self.received} of {self.announced} bytes had come",
            )
        try:
            return self._response.read1(CHUNK)
        except TimeoutError as error:
            raise Unavailable(
                f"the source of image {self._image.key} stalls",
                detail=f"{self._image.url}: nothing for {STALL_SECONDS:.0f} s after {self.received} bytes",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(
                f"the source of image {self._image.key} broke off",
                detail=f"{self._image.url}: {error!r} after {self.received} bytes",
            ) from error


def _names_other_files(header: bytes) -> bool:
    """Whether a qcow2 is not all there is: QEMU would look for the rest among the host's own files."""
    version, backing_file = int.from_bytes(header[4:8], "big"), int.from_bytes(header[8:16], "big")
    features = int.from_bytes(header[72:80], "big") if version >= 3 else 0
    return bool(backing_file or features & EXTERNAL_DATA)


@contextmanager
def download(image: Image, *, deadline: float) -> Iterator[Download]:
    """Open the image's URL. ``deadline`` is a ``time.monotonic()``.

    Raises Unavailable when the source can't be reached or fails, Misconfigured when it says that it has no such image.
    """
    request = urllib.request.Request(image.url, headers={"Accept-Encoding": "identity"})  # noqa: S310 - http(s), checked where it is declared
    try:
        response = urllib.request.urlopen(request, timeout=STALL_SECONDS)  # noqa: S310 - as above
    except urllib.error.HTTPError as error:
        with error:
            detail = f"{image.url}: {error.code} {error.reason}"
        if error.code >= 500 or error.code in {408, 429}:
            raise Unavailable(f"the source of image {image.key} fails", detail=detail) from None
        raise Misconfigured(f"the source of image {image.key} answers {error.code}", detail=detail) from None
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(
            f"the source of image {image.key} can't be reached", detail=f"{image.url}: {error}"
        ) from error
    with response:
        yield Download(image, response, deadline)
