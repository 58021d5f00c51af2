"""The NoCloud seed: an ISO image from which cloud-init in a guest reads what the guest is to become."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from io import BytesIO

from pycdlib import PyCdlib

LABEL = "cidata"
"""What cloud-init looks for. A template that carries a seed drive of its own would hide this one from it."""

_SECTOR = 2048
_FIRST_DESCRIPTOR = 16
_PRIMARY, _SUPPLEMENTARY, _TERMINATOR = 1, 2, 255
_RECORD_DATE = bytes([80, 1, 1, 0, 0, 0, 0])
_VOLUME_DATE = b"1980010100000000\0"


def build_seed_iso(
    *,
    instance_id: str,
    hostname: str,
    user_data: bytes | None,
    vendor_data: bytes | None = None,
    network_config: bytes | None = None,
) -> bytes:
    """The image; the same arguments give the same bytes, so that a repeated upload replaces a seed by itself.

    ``user_data`` and the others reach the guest byte for byte, in any format that cloud-init knows. cloud-init runs its
    once-per-instance modules anew when ``instance_id`` changes.
    """
    files = {
        # Without user-data, even empty, cloud-init says that this is no seed.
        "user-data": user_data or b"",
        # JSON is YAML with its strings quoted: an id of digits alone would be read as a number.
        "meta-data": json.dumps({"instance-id": instance_id, "local-hostname": hostname}).encode(),
        "vendor-data": vendor_data,
        "network-config": network_config,
    }
    image = PyCdlib()
    # Joliet and Rock Ridge carry the names: plain ISO 9660 has no lower case and no dash.
    image.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident=LABEL)
    try:
        for name, content in files.items():
            if content is not None:
                plain_name = name.upper().replace("-", "_")
                image.add_fp(BytesIO(content), len(content), f"/{plain_name}.;1", rr_name=name, joliet_path=f"/{name}")
        written = BytesIO()
        image.write_fp(written)
    finally:
        image.close()
    return _with_fixed_dates(bytearray(written.getvalue()))


def _with_fixed_dates(image: bytearray) -> bytes:
    """pycdlib writes the time of the build into every record and offers no other (ECMA-119 sections 8.4 and 9.1)."""
    for descriptor in _descriptors(image):
        for date in range(4):
            start = descriptor + 813 + date * len(_VOLUME_DATE)
            if image[start : start + 4] != b"0000":
                image[start : start + len(_VOLUME_DATE)] = _VOLUME_DATE
        root = descriptor + 156
        _fix_record(image, root)
        (extent,) = struct.unpack_from("<L", image, root + 2)
        (size,) = struct.unpack_from("<L", image, root + 10)
        position = extent * _SECTOR
        while position < extent * _SECTOR + size and image[position]:
            _fix_record(image, position)
            position += image[position]
    return bytes(image)


def _descriptors(image: bytearray) -> Iterator[int]:
    position = _FIRST_DESCRIPTOR * _SECTOR
    while image[position] != _TERMINATOR:
        if image[position] in {_PRIMARY, _SUPPLEMENTARY}:
            yield position
        position += _SECTOR


def _fix_record(image: bytearray, record: int) -> None:
    """The date of a directory record and those of its Rock Ridge stamps: ``TF``, length, version, flags, dates."""
    image[record + 18 : record + 25] = _RECORD_DATE
    end = record + image[record]
    stamps = image.find(b"TF", record + 33, end)
    if stamps >= 0:
        stop = stamps + image[stamps + 2]
        image[stamps + 5 : stop] = _RECORD_DATE * ((stop - stamps - 5) // len(_RECORD_DATE))
