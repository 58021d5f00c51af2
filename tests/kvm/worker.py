"""A worker that creates one instance: ``python -m tests.kvm.worker kvm|kvm2 BLOCK``, to be killed meanwhile."""

from __future__ import annotations

import sys

from providers.blocks import LibvirtBlock
from tests.kvm.entries import provider, tiny_request

if __name__ == "__main__":
    kind, text = sys.argv[1:]
    configuration = LibvirtBlock.model_validate_json(text)
    provider(kind, configuration).create(tiny_request(image=next(iter(configuration.images))))
