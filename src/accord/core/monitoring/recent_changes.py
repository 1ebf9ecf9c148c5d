"""What changed at a node lately: policies, limits, clients, links, refusals, the pipeline.

The newest 200 rows are kept. When there are more, the oldest row of the most frequent kind goes, so
many clients that come and go leave the last change of a policy in its place. Rows that a peer can
cause at will say how they are counted: beyond a few per minute they are counted in one row, which
stays until there was none for a minute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

from msgspec import DecodeError, Struct, json
from msgspec.structs import replace

from accord.core.monitoring.statistics import Statistics

CAPACITY: Final = 200
CONSOLE_PREFIX: Final = "console-"  # of the clients that pages of the console are
BURST: Final = 10
REFILL_MS: Final = 6_000
_QUIET_MS: Final = 60_000

POLICY: Final = "policy"
LIMIT: Final = "limit"
CLIENT: Final = "client"
LINK: Final = "link"
REFUSAL: Final = "refusal"
PIPELINE: Final = "pipeline"
NODE: Final = "node"
CHANNEL: Final = "channel"
QUALITY: Final = "quality"

# Kind and page of the groups of operations, and whether any client may make such changes.
_GROUPS: Final = {
    "policies": (POLICY, "policies", False),
    "limits": (LIMIT, "policies", False),
    "clients": (CLIENT, "clients", False),
    "channels": (CHANNEL, "channels", False),
    "retained": (CHANNEL, "channels", False),
    "advertisements": (CHANNEL, "channels", True),
    "expectations": (QUALITY, "quality", True),
    "capabilities": (QUALITY, "quality", True),
    "properties": (QUALITY, "quality", True),
}

_MAX_NAME: Final = 200
_MAX_TEXT: Final = 400


class RecentChange(Struct, frozen=True, kw_only=True):
    """What changed, by whom; `page` is where the console shows it, `number` grows."""

    number: int
    at_ms: int
    kind: str
    who: str = ""
    what: str
    detail: str = ""
    page: str = ""
    channel: str = ""  # that it concerns
    count: int = 1
    is_request: bool = False  # whether `detail` is what somebody asked of the node


class _Bucket:
    """Allows a burst of rows; then rows are counted in the one of number `many`."""

    def __init__(self, now_ms: int) -> None:
        self._left = float(BURST)
        self._at_ms = now_ms
        self.many = 0
        self.many_ms = 0

    def take(self, now_ms: int) -> bool:
        elapsed_ms = max(now_ms - self._at_ms, 0)
        self._left = min(float(BURST), self._left + elapsed_ms / REFILL_MS)
        self._at_ms = now_ms
        if self._left < 1:
            return False
        self._left -= 1
        return True


class RecentChanges:
    """The newest changes; `version` grows with every one."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.version = 0
        self._capacity = capacity
        self._number = 0
        self._rows: dict[int, RecentChange] = {}
        self._by_kind: dict[str, deque[int]] = {}  # numbers, oldest first
        self._buckets: dict[str, _Bucket] = {}

    def add(  # noqa: PLR0913 (what is shown of a change)
        self,
        kind: str,
        what: str,
        *,
        now_ms: int,
        who: str = "",
        detail: str = "",
        page: str = "",
        channel: str = "",
        many: str = "",
        is_request: bool = False,
    ) -> None:
        """Add a change; those with the same `many`, such as "clients connected", may be counted."""
        self.version += 1
        if many and not self._bucket(many, now_ms).take(now_ms):
            self._count(kind, many, now_ms)
            return
        self._put(
            RecentChange(
                number=self._next(),
                at_ms=now_ms,
                kind=kind,
                who=_bounded(who, _MAX_NAME),
                what=_bounded(what, _MAX_TEXT),
                detail=_bounded(detail, _MAX_TEXT),
                page=_bounded(page, _MAX_TEXT),
                channel=channel,
                is_request=is_request,
            )
        )

    def client_connected(self, client: str, user: str, address: str, *, now_ms: int) -> None:
        """Add a client that came; the connections of the console's own pages are no news."""
        if client.startswith(CONSOLE_PREFIX):
            return
        what = f"{client} connected"
        self.add(
            CLIENT,
            what,
            now_ms=now_ms,
            who=user or client,
            detail=f"from {address}" if address else "",
            page=page_of("clients", client),
            many="clients connected",
        )

    def client_disconnected(self, client: str, user: str, why: str, *, now_ms: int) -> None:
        if client.startswith(CONSOLE_PREFIX):
            return
        self.add(
            CLIENT,
            f"{client} disconnected",
            now_ms=now_ms,
            who=user or client,
            detail=why,
            page=page_of("clients", client),
            many="clients disconnected",
        )

    def link_changed(self, node: str, *, is_up: bool, now_ms: int) -> None:
        state = "up" if is_up else "down"
        self.add(
            LINK,
            f"link to {node} is {state}",
            now_ms=now_ms,
            who=node,
            page="/network",
            many=f"links {state}",
        )

    def audited(  # noqa: PLR0913 (what is known of a change)
        self,
        operation: str,
        *,
        who: str,
        address: str,
        request: str,
        subject: str,
        channel: str,
        now_ms: int,
    ) -> None:
        """Add a change that somebody made by an operation, such as `policies.put_policy`."""
        group, _, action = operation.partition(".")
        kind, section, is_rightless = _GROUPS.get(group, (NODE, "", False))
        if "limit" in action:
            kind = LIMIT
        if kind == CHANNEL:
            channel = channel or subject
        words = action.replace("_", " ")
        self.add(
            kind,
            _sentence(group, words, subject),
            now_ms=now_ms,
            who=f"{who} from {address}" if address and address not in who else who,
            detail=_in_words(request, subject),
            page=page_of(section, subject) if section and subject else f"/{section}",
            channel=channel,
            many=f"changes of {group}" if is_rightless else "",
            is_request=True,
        )

    def rows(self) -> list[RecentChange]:
        """Return all, newest first."""
        return sorted(self._rows.values(), key=lambda each: -each.number)

    def __len__(self) -> int:
        return len(self._rows)

    def _bucket(self, many: str, now_ms: int) -> _Bucket:
        bucket = self._buckets.get(many)
        if bucket is None:
            bucket = self._buckets[many] = _Bucket(now_ms)
        return bucket

    def _count(self, kind: str, many: str, now_ms: int) -> None:
        """Count a change in the row for many, a new one after a quiet time."""
        bucket = self._buckets[many]
        row = self._rows.get(bucket.many)
        if row is None or not 0 <= now_ms - bucket.many_ms < _QUIET_MS:
            row = RecentChange(number=self._next(), at_ms=now_ms, kind=kind, what=f"1 more {many}")
            bucket.many = row.number
            self._put(row)
        else:
            count = row.count + 1
            what = f"{count:,} more {many}"
            self._rows[row.number] = replace(row, at_ms=now_ms, what=what, count=count)
        bucket.many_ms = now_ms

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _put(self, row: RecentChange) -> None:
        self._rows[row.number] = row
        self._by_kind.setdefault(row.kind, deque()).append(row.number)
        if len(self._rows) > self._capacity:
            most = max(self._by_kind.values(), key=len)
            del self._rows[most.popleft()]


_RATES: Final = frozenset(("bandwidth", "client_bandwidth"))
_MAX_ITEMS: Final = 5
_HIDDEN: Final = frozenset(("do", "if_version"))


def _sentence(group: str, words: str, subject: str) -> str:
    """What was done, such as `policies: settings changed`."""
    if group == "policies" and words == "patch":
        return "policies: settings changed"
    if group == "policies" and words == "replace":
        return "policies: replaced"
    return f"{group}: {words} {subject}".rstrip()


def _in_words(request: str, subject: str) -> str:
    """The fields of a request as `name value, …`; nothing of a long one, which was cut."""
    try:
        found = json.decode(request)
    except DecodeError:
        return ""
    return ", ".join(_fields(found, subject)) if isinstance(found, dict) else request


def _fields(values: dict[str, Any], subject: str) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _fields(value, subject)
        elif name not in _HIDDEN and value != subject:
            yield f"{name.replace('_', ' ')} {_value(name, value)}"


def _value(name: str, value: object) -> str:
    """A value in words: lists as their items, rates with their unit."""
    if isinstance(value, list):
        items = [_item(each) for each in value[:_MAX_ITEMS]]
        if len(value) > _MAX_ITEMS:
            items.append(f"{len(value) - _MAX_ITEMS} more")
        return ", ".join(items) or "none"
    if name in _RATES and isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value / 1_000:,g} kbit/s"
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.encode(value).decode()


def _item(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(_value(name, each) for name, each in value.items())
    return _value("", value)


def state_changes(before: Statistics, after: Statistics) -> Iterator[tuple[str, str, str]]:
    """Yield kind, sentence and detail of what happened to the journal and the pipeline."""
    if before.journal is not None and after.journal is not None:
        failed, fails = before.journal.failure, after.journal.failure
        if fails and not failed:
            yield NODE, "journal failed", fails
        elif failed and not fails:
            yield NODE, "journal works again", ""
    if after.pipeline is not None:
        was = "off" if before.pipeline is None else before.pipeline.state
        if was != after.pipeline.state:
            yield PIPELINE, f"pipeline: {after.pipeline.state}", after.pipeline.problem


def page_of(kind: str, name: str) -> str:
    """Return the page of a channel, client or policy: `/clients/patrol-1`."""
    return f"/{kind}/{quote(name)}" if len(name) <= _MAX_NAME else f"/{kind}"


def _bounded(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
