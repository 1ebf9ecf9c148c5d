"""Dispatches the broker's orders to worker processes: shaping, and costly conditions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from accord.core.broker.broker import TOO_COSTLY, Broker
from accord.core.broker.broker_context import WorkerOrder
from accord.core.broker.message_shaping import ShapingOrder, shaped_message
from accord.core.broker.publish_handler import ConditionsOrder
from accord.core.model.document import Condition
from accord.core.scheduling.tasks import Tasks
from accord.runtime.logs import get_log
from accord.runtime.process import Clock
from accord.runtime.worker_jobs import JobFailure, JobPriority, Values, shape_job, xpath_job
from accord.runtime.workers import WorkerLimits, Workers
from accord.shaping.content import Content
from accord.shaping.registry import accepts
from accord.shaping.sniffing import HEAD

log = get_log(__name__)

_EVALUATING: Final = 4  # concurrent messages of one publisher
_MAX_SUSPENDED: Final = 1_000  # remembered conditions that timed out
_SUSPEND_MS: Final = 60_000
_SUSPENDING: Final = ("too long", "died", "failed")


class WorkerDispatcher:
    """`due` is called when an order has a result."""

    def __init__(self, broker: Broker, clock: Clock, due: Callable[[], None]) -> None:
        self._broker = broker
        self._clock = clock
        self._due = due
        limits = WorkerLimits()
        waiting = Tasks(
            count_limit=limits.waiting_jobs,
            bytes_limit=limits.waiting_bytes,
            discipline=broker.context.discipline,
        )
        self.workers = Workers(limits, waiting, now_ms=clock.now_ms)
        self._evaluating: dict[str, int] = {}  # concurrent messages, by publisher
        self._suspended: dict[Condition, int] = {}  # timed out, and until when
        broker.context.has_workers = True

    def take(self) -> None:
        """Submit the orders made since the last call."""
        context = self._broker.context
        orders, context.orders = context.orders, []
        for order in orders:
            if isinstance(order, ShapingOrder):
                self._shape(order)
            else:
                assert isinstance(order, ConditionsOrder)
                self._evaluate(order)

    async def close(self) -> None:
        await self.workers.close()

    def _shape(self, order: ShapingOrder) -> None:
        message = order.message
        content = Content(
            message.payload, message.properties.content_type or "", message.properties.user
        )
        if not accepts(order.shape.shaper, content.content_type, content.payload[:HEAD]):
            order.fail()
            return

        def done(result: Content | JobFailure, _: int) -> None:
            if self._has_succeeded(order, result):
                assert isinstance(result, Content)
                order.finish(shaped_message(message, result.payload, result.properties))

        self.workers.submit(shape_job(content, order.shape, self._priority(order), done))

    def _evaluate(self, order: ConditionsOrder) -> None:
        """Evaluate costly conditions without letting one client occupy the workers for long.

        A condition that timed out is unknown for a while. One publisher may have a few messages
        evaluated at a time; conditions of further ones fail.
        """
        now_ms = self._clock.now_ms()
        publisher = order.message.publisher
        for condition in order.document.deferred:
            if self._suspended.get(condition, 0) > now_ms:
                order.document.remember(condition, None)
        conditions = order.document.deferred
        if not conditions or self._evaluating.get(publisher, 0) >= _EVALUATING:
            self._broker.context.counters.count_shed(TOO_COSTLY, publisher)
            order.fail()
            return
        self._evaluating[publisher] = self._evaluating.get(publisher, 0) + 1

        def done(result: Values | JobFailure, _: int) -> None:
            self._evaluating[publisher] -= 1
            if not self._evaluating[publisher]:
                del self._evaluating[publisher]
            if isinstance(result, JobFailure):
                if result.kind in _SUSPENDING:
                    self._suspend(conditions)
            else:
                pairs = zip(conditions, result, strict=True)
                self._suspend([condition for condition, value in pairs if value is None])
            if self._has_succeeded(order, result):
                assert isinstance(result, list)
                order.finish(conditions, result)

        source = order.document.source
        self.workers.submit(xpath_job(source, conditions, self._priority(order), done))

    def _suspend(self, conditions: list[Condition]) -> None:
        if len(self._suspended) >= _MAX_SUSPENDED:
            self._suspended.clear()
        for condition in conditions:
            self._suspended[condition] = self._clock.now_ms() + _SUSPEND_MS

    def _priority(self, order: WorkerOrder) -> JobPriority:
        message = order.message
        return JobPriority(
            queued_ms=self._clock.now_ms(),
            importance=order.importance,
            due_ms=order.due_ms,
            channel=message.channel,
            cost_us=self.workers.cost_us(message.channel),
            number=message.number,
        )

    def _has_succeeded(self, order: WorkerOrder, result: Content | Values | JobFailure) -> bool:
        self._broker.context.now_ms = self._clock.now_ms()
        self._due()
        if isinstance(result, JobFailure):
            log.warning("worker: no result", channel=order.message.channel, why=result.reason)
            order.fail()
        return not isinstance(result, JobFailure)
