"""Builds sheets from the clauses of plain predicates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from accord.pipeline.bulk.events import Integers
from accord.pipeline.bulk.shapes import Family, to_clauses
from accord.pipeline.bulk.sheets import Sheet

Signature = tuple[tuple[tuple[str, str], ...], tuple[str, ...]]  # points, ranges
Floats = NDArray[np.float64]

_ARROW = {"string": pa.string(), "number": pa.float64(), "boolean": pa.bool_()}


def signature_of(family: Family) -> Signature:
    """Signature of a family: attributes compared for equality, and with bounds."""
    return family.plan.point_names, tuple(sorted(family.plan.range_names))


def to_sheet(
    signature: Signature, families: Sequence[Family], filters: pa.DictionaryArray
) -> Sheet:
    """Build a sheet of all clauses of `families`, which share a signature; `filters` are by
    position.
    """
    points, ranges = signature
    parts = [to_clauses(family) for family in families]
    rows = [[family.plan.range_names.index(name) for name in ranges] for family in families]
    places = np.concatenate([part.places for part in parts])
    lows = np.concatenate([part.lows[row] for part, row in zip(parts, rows, strict=True)], axis=1)
    highs = np.concatenate([part.highs[row] for part, row in zip(parts, rows, strict=True)], axis=1)
    axes = _by_narrowness(lows, highs)
    ranges, lows, highs = tuple(ranges[axis] for axis in axes), lows[axes], highs[axes]
    columns = [
        pa.array([value for part in parts for value in part.points[number]], _ARROW[kind])
        for number, (_, kind) in enumerate(points)
    ]
    filter_codes = filters.indices.to_numpy()[places].astype(np.int64)
    groups, samples = _group([filter_codes, *map(_codes, columns)])
    order = np.lexsort((lows[0], groups) if len(lows) else (groups,))
    starts = np.searchsorted(groups[order], np.arange(len(samples) + 1))
    lows, highs = lows[:, order], highs[:, order]
    used, group_filters = np.unique(filter_codes[samples], return_inverse=True)
    return Sheet(
        points=points,
        ranges=ranges,
        filters=tuple(filters.dictionary.take(pa.array(used)).to_pylist()),
        starts=starts,
        group_filters=group_filters,
        group_points=tuple(column.take(pa.array(samples)) for column in columns),
        positions=places[order],
        lows=lows,
        highs=highs,
        peaks=_peaks(highs[0], starts) if len(highs) else np.empty(0),
    )


def _codes(column: pa.Array) -> Integers:
    codes: Integers = column.dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes


def _group(columns: Sequence[Integers]) -> tuple[Integers, Integers]:
    """Assign each clause to a group; also return one clause of each group."""
    groups = columns[0]
    for column in columns[1:]:
        width = int(column.max(initial=0)) + 1
        _, groups = np.unique(groups * width + column, return_inverse=True)
    _, samples, groups = np.unique(groups, return_index=True, return_inverse=True)
    return groups, samples


def _peaks(highs: Floats, starts: Integers) -> Floats:
    peaks = np.empty_like(highs)
    for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        np.maximum.accumulate(highs[start:end], out=peaks[start:end])
    return peaks


def _by_narrowness(lows: Floats, highs: Floats) -> list[int]:
    """Axes by the mean share of the bounds' whole span that a clause covers, smallest first."""
    shares = []
    for low, high in zip(lows, highs, strict=True):
        ends = np.concatenate((low, high))
        ends = ends[np.isfinite(ends)]
        bottom, top = ends.min(initial=np.inf), ends.max(initial=-np.inf)
        width = np.minimum(high, top) - np.maximum(low, bottom)
        shares.append(float(width.mean() / (top - bottom)) if top > bottom else 1.0)
    return sorted(range(len(shares)), key=shares.__getitem__)
