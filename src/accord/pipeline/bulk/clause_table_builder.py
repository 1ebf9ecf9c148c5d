"""Builds clause tables from the clauses of predicates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from accord.pipeline.bulk.clause_tables import WORD_BITS, CellBitmaps, ClauseTable, Pairs
from accord.pipeline.bulk.events import Floats, Integers
from accord.pipeline.bulk.text_patterns import ClauseColumns, Signature

_MIN_CELLS: Final = 128  # of an axis
_MAX_CELLS: Final = 4_096
_BITMAP_BITS: Final = 1 << 25  # of an axis, if that makes more than the fewest cells
_ARROW: Final = {"string": pa.string(), "number": pa.float64(), "boolean": pa.bool_()}


def build_table(
    signature: Signature, parts: Sequence[ClauseColumns], filters: pa.DictionaryArray
) -> ClauseTable:
    """Build the table of clauses that share a signature; `filters` are by predicate position."""
    equalities, axes = signature
    positions = np.concatenate([part.places for part in parts])
    lows = np.concatenate([part.lows for part in parts], axis=1)
    highs = np.concatenate([part.highs for part in parts], axis=1)
    by_selectivity = _by_selectivity(lows, highs)
    axes, lows, highs = (
        tuple(axes[axis] for axis in by_selectivity), lows[by_selectivity], highs[by_selectivity],
    )  # fmt: skip
    columns = [
        pa.array([value for part in parts for value in part.equalities[number]], _ARROW[kind])
        for number, (_, kind) in enumerate(equalities)
    ]
    filter_codes = filters.indices.to_numpy()[positions].astype(np.int64)
    groups, samples = _group([filter_codes, *map(_codes, columns)])
    order = np.lexsort((lows[0], groups) if len(lows) else (groups,))
    lows, highs = lows[:, order], highs[:, order]
    used, group_filters = np.unique(filter_codes[samples], return_inverse=True)
    return ClauseTable(
        equalities=equalities,
        axes=axes,
        filters=tuple(filters.dictionary.take(pa.array(used)).to_pylist()),
        starts=np.searchsorted(groups[order], np.arange(len(samples) + 1)),
        group_filters=group_filters,
        group_constants=tuple(column.take(pa.array(samples)) for column in columns),
        positions=positions[order],
        lows=lows,
        highs=highs,
        cells=tuple(_cells(low, high) for low, high in zip(lows, highs, strict=True)),
    )


def _codes(column: pa.Array) -> Integers:
    codes: Integers = column.dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes


def _group(columns: Sequence[Integers]) -> Pairs:
    """Assign each clause to a group; also return one clause of each group."""
    groups = columns[0]
    for column in columns[1:]:
        width = int(column.max(initial=0)) + 1
        _, groups = np.unique(groups * width + column, return_inverse=True)
    _, samples, groups = np.unique(groups, return_index=True, return_inverse=True)
    return groups, samples


def _by_selectivity(lows: Floats, highs: Floats) -> list[int]:
    """Axes by the mean share of the bounds' whole span that a clause covers, smallest first."""
    shares = []
    for low, high in zip(lows, highs, strict=True):
        ends = np.concatenate((low, high))
        ends = ends[np.isfinite(ends)]
        bottom, top = ends.min(initial=np.inf), ends.max(initial=-np.inf)
        width = np.minimum(high, top) - np.maximum(low, bottom)
        shares.append(float(width.mean() / (top - bottom)) if top > bottom else 1.0)
    return sorted(range(len(shares)), key=shares.__getitem__)


def _cells(lows: Floats, highs: Floats) -> CellBitmaps:
    """Divide an axis into cells with equally many bounds in each."""
    ends = np.unique(np.concatenate((lows, highs)))
    ends = ends[np.isfinite(ends)]
    most = min(_MAX_CELLS, max(_MIN_CELLS, _BITMAP_BITS // max(1, len(lows))))
    edges = ends[np.linspace(0, len(ends) - 1, min(len(ends), most)).astype(np.int64)]
    words = -(-len(lows) // WORD_BITS)
    # Each clause toggles its bit at its first cell and after its last.
    toggles = np.zeros((len(edges) + 2, words), np.uint64)
    clauses = np.arange(len(lows))
    bits = np.uint64(1) << (clauses % WORD_BITS).astype(np.uint64)
    for cells in (np.searchsorted(edges, lows, "right"), np.searchsorted(edges, highs) + 1):
        np.bitwise_xor.at(toggles, (cells, clauses // WORD_BITS), bits)
    bitmaps = np.bitwise_xor.accumulate(toggles[:-1], axis=0)
    is_used = np.zeros((len(bitmaps), -(-words // WORD_BITS) * WORD_BITS), np.bool_)
    is_used[:, :words] = bitmaps != 0
    return CellBitmaps(
        edges, bitmaps, np.packbits(is_used, axis=1, bitorder="little").view(np.uint64)
    )
