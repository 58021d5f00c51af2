"""One module for each thing that is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from bench.measurements import batch, growth, listing, none, pair, probe, tables
from bench.results import Result
from bench.scale import Scale
from bench.stage import Stage

Measurement: TypeAlias = Callable[[Stage, Scale], Iterable[Result]]

MEASUREMENTS: Mapping[str, Measurement] = MappingProxyType(
    {
        "pair": pair.measure,
        "growth": growth.measure,
        "none": none.measure,
        "batch": batch.measure,
        "list": listing.measure,
        "probe": probe.measure,
        "tables": tables.measure,
    }
)
