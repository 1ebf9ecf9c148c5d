"""XPath conditions that take too long to be evaluated while a node's traffic waits.

Matching itself finds them: the index rules out most conditions without evaluating them, and what
it does ask, the document lists instead of answering it where the cost is too high. So nothing is
evaluated elsewhere that nobody needs. Once the answers are remembered, matching again is complete.
"""

from __future__ import annotations

from collections.abc import Mapping

from accord.core.model.document import Condition, Document
from accord.core.model.values import Value
from accord.core.predicates.index import Index
from accord.core.predicates.xpath import INLINE_COST


def heavy_conditions(
    index: Index,
    channel: str,
    values: Mapping[str, Value],
    document: Document,
    *,
    limit: int | None = None,
) -> list[Condition]:
    """What has to be found out of `document` before an event of `channel` can be matched."""
    document.defer(INLINE_COST)
    index.match_values(channel, values, document, limit=limit)
    return document.deferred
