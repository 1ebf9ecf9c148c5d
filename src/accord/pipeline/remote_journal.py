"""A journal read over HTTP from the node that writes it.

A request that fails for a transient reason is retried a few times with backoff, so a restart of the
node does not end a long read. A refusal (wrong password, missing rights) is reported immediately.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from http.client import HTTPException
from typing import Final
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec

from accord.core.model.errors import AccordError
from accord.core.queries.journal_http import (
    JOURNAL,
    RECORDS,
    JournalChunk,
    JournalExtent,
    NodeAddress,
    decode_part,
    parse_node_address,
)
from accord.journal.reader import Extent, ReadResult, Retired
from accord.journal.record import MAX_RECORD, Batch
from accord.journal.segments import Damaged

_TIMEOUT_S: Final = 30.0
_PAUSES_S: Final = (0.1, 0.5, 2.0, 5.0)
_IMPATIENT_S: Final = 5.0
_PART_BYTES: Final = 4 << 20
_MOST: Final = MAX_RECORD + (64 << 20)
_RECORD_BYTES: Final = 1_000  # assumed average
_PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class RemoteError(AccordError):
    """A node did not return what was requested."""

    def __init__(self, problem: str, *, place: str) -> None:
        self.problem = problem
        self.place = place
        super().__init__(f"journal of {place}: {problem}")


class _NoRedirects(HTTPRedirectHandler):
    """Rejects redirects: a node has no reason to send one, and the password is for it alone."""

    def redirect_request(self, *_: object) -> None:
        return None


class RemoteReader:
    """Reads from the node at `url`: `https://user:password@host:8080`.

    It must be `node`, unless that is empty. Without patience, it tries once.
    """

    def __init__(
        self,
        url: str,
        node: str = "",
        *,
        is_patient: bool = True,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        try:
            address = parse_node_address(url)
        except ValueError as error:
            raise RemoteError(str(error), place=url.rpartition("@")[2][:80]) from None
        self._base = address.url
        self._node = node
        self._headers = {"User-Agent": "accord", **login(address)}
        self._open = build_opener(_NoRedirects).open
        self._pauses_s = _PAUSES_S if is_patient else ()
        self._timeout_s = _TIMEOUT_S if is_patient else _IMPATIENT_S
        self._pause = pause

    def node(self) -> str:
        """The node's name."""
        return self._fetch_extent().node

    def extent(self) -> Extent:
        reply = self._fetch_extent()
        return Extent(reply.first_offset, reply.next_offset)

    def sizes(self, extent: Extent) -> list[tuple[int, int]]:
        """An estimate that bounds the size of parts; nodes do not report sizes."""
        records = extent.next_offset - extent.first_offset
        return [(extent.first_offset, records * _RECORD_BYTES)] if records else []

    def read(
        self, offset: int, *, max_records: int | None = None, max_bytes: int | None = None
    ) -> Iterator[ReadResult]:
        """As `journal.reader.Reader.read`; `max_bytes` is rounded to whole parts."""
        end = self.extent().next_offset
        if max_records is not None:
            end = min(end, offset + max_records)
        left = max_bytes
        while offset < end and (left is None or left > 0):
            few_bytes = (end - offset) * _RECORD_BYTES
            part = self._fetch_part(offset, min(_PART_BYTES, few_bytes, left or _PART_BYTES))
            if part.retired is not None:
                yield Retired(offset, part.retired)
                return
            if part.next_offset <= offset:
                raise self._error(f"nothing at offset {offset}, expected records up to {end}")
            for found in _found(part):
                if isinstance(found, Batch):
                    batch = found.between(offset, end)
                    if batch.count:
                        yield batch
                elif found.offset < end:
                    yield found
            if left is not None:
                left -= sum(len(batch.data) for batch in part.batches)
            offset = part.next_offset

    def _fetch_extent(self) -> JournalExtent:
        try:
            extent = msgspec.json.decode(self._get(JOURNAL), type=JournalExtent)
        except msgspec.DecodeError as error:
            raise self._error(f"invalid reply: {error}") from error
        self._check_node(extent.node)
        return extent

    def _fetch_part(self, offset: int, max_bytes: int) -> JournalChunk:
        asked = urlencode({"offset": offset, "max_bytes": max_bytes})
        try:
            part = decode_part(self._get(f"{RECORDS}?{asked}"))
        except msgspec.DecodeError as error:
            raise self._error(f"invalid reply: {error}") from error
        self._check_node(part.node)
        return part

    def _check_node(self, found: str) -> None:
        if self._node and found != self._node:
            raise self._error(f"this is node {found}, expected {self._node}")

    def _get(self, path: str) -> bytes:
        request = Request(self._base + path, headers=self._headers)  # noqa: S310 (see __init__)
        for pause_s in (*self._pauses_s, None):
            try:
                return self._fetch(request)
            except HTTPError as error:
                with error:
                    problem = _refusal(error)
                if error.code not in _PASSING:
                    break
            except (HTTPException, OSError) as error:
                problem = f"unreachable: {getattr(error, 'reason', None) or error}"
            if pause_s is not None:
                self._pause(pause_s)
        raise self._error(problem)

    def _fetch(self, request: Request) -> bytes:
        with self._open(request, timeout=self._timeout_s) as answer:
            body: bytes = answer.read(_MOST + 1)
        if len(body) > _MOST:
            raise self._error(f"an answer of more than {_MOST} bytes")
        return body

    def _error(self, problem: str) -> RemoteError:
        return RemoteError(problem, place=self._base)


def login(address: NodeAddress) -> dict[str, str]:
    """The header that says who asks."""
    if address.user is None:
        return {}
    named = f"{address.user}:{address.password or ''}"
    return {"Authorization": f"Basic {base64.b64encode(named.encode()).decode()}"}


def _found(part: JournalChunk) -> list[Batch | Damaged]:
    """Records in order of their offsets."""
    batches: list[Batch | Damaged] = [
        Batch(each.first_offset, each.time_ms, each.lengths, each.data, 0)
        for each in part.batches
        if sum(each.lengths) == len(each.data)
    ]
    gaps = [Damaged("", 0, gap.why, gap.first_offset, gap.next_offset) for gap in part.gaps]
    return sorted([*batches, *gaps], key=_offset)


def _offset(found: Batch | Damaged) -> int:
    return found.first_offset if isinstance(found, Batch) else found.offset


def _refusal(error: HTTPError) -> str:
    try:
        reply = msgspec.json.decode(error.read(10_000))
        why = next(str(reply[name]) for name in ("error", "problem", "detail") if name in reply)
    except (OSError, msgspec.DecodeError, StopIteration, TypeError):
        why = str(error.reason)
    return f"HTTP {error.code}: {why[:300]}"
