"""The pipeline process: one archive, and the nodes whose journals go into it.

Questions are answered as soon as the tables are open, which takes a moment. Spark follows: from
then on journals are archived, and large questions go there. Without Java it all stays at that, and
health says so. A failure in a query ends only that query; a failure of Spark ends this process, and
the node starts another.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import structs

from accord.core.queries.messages import FromPipeline, Health, StartPipeline
from accord.core.router.limits import BUILD
from accord.pipeline import tables
from accord.pipeline.conversion import convert
from accord.pipeline.delta_log import Archive
from accord.pipeline.java import JavaError
from accord.pipeline.node_service import NodeService

if TYPE_CHECKING:
    from accord.pipeline.journal_sink import BatchDone
    from accord.pipeline.spark_service import SparkService

_JAVA_AGAIN_S: Final = 30.0  # between two looks for a Java
_log: Final = logging.getLogger(__name__)


class PipelineService:
    """The process between its start and its end; nodes come and go."""

    def __init__(self, start: StartPipeline) -> None:
        self._start = start
        self._journals = start.journals_by_node()
        self._health = Health(build=BUILD)
        self._archive = Archive(start.archive, tuple(self._journals))
        self._nodes: dict[str, NodeService] = {}
        self._absent: dict[str, str] = {}  # nodes that are not connected, and why
        self._is_open = False
        self._spark: SparkService | None = None
        self._has_spark = False
        self._closing = threading.Event()
        self._lock = threading.RLock()  # nodes, and what they have been told to use

    def open(self) -> None:
        """Answer questions, then start Spark; SessionError or TablesError if that fails."""
        start = self._start
        tables.check_declared(start.declared)
        convert(self._archive.storage)
        with self._lock:
            self._is_open = True
            for node in self._nodes.values():
                node.start()
        self._set("partial", "")
        self._open_spark()
        if not self._closing.is_set():
            self._set("ready", "")

    def connect(self, node: str, send: Callable[[FromPipeline], object]) -> NodeService:
        """Work for this node, until `disconnect`."""
        service = NodeService(
            node, self._journals[node], self._archive, send, timeout_s=self._start.timeout_s
        )
        with self._lock:
            self._nodes[node] = service
            self._absent.pop(node, None)
            if self._is_open:
                service.start()
            if self._spark is not None and self._has_spark:
                service.join_spark(self._spark)
        return service

    def disconnect(self, service: NodeService) -> None:
        with self._lock:
            self._nodes.pop(service.node, None)
            if self._spark is not None:
                self._spark.stop_measuring(service.node)
        service.close(0)

    def report_absent(self, node: str, why: str) -> None:
        """Say in the health of all nodes that this one is not connected."""
        with self._lock:
            self._absent[node] = why

    def tick(self) -> None:
        """Once a second: check what runs."""
        if self._spark is not None:
            self._spark.tick()

    def tick_node(self, service: NodeService) -> None:
        """Once a second for each node: report health."""
        service.tick(self.health())

    def health(self) -> Health:
        health = self._health
        if self._spark is not None:
            health = self._spark.describe(health)
        if not health.problem:
            with self._lock:
                absent = [f"{node} is not connected: {why}" for node, why in self._absent.items()]
            health = structs.replace(health, problem="; ".join(absent))
        return health

    def why_broken(self) -> str:
        """Why a new process is needed; "" if none is."""
        return "" if self._spark is None else self._spark.why_broken()

    def fail(self, problem: str) -> None:
        self._set("failed", problem)

    def close(self, timeout_s: float) -> None:
        """Stop what runs, then Spark, within about this time."""
        self._closing.set()
        self._health = structs.replace(self._health, state="stopping")
        for node in list(self._nodes.values()):
            node.close(timeout_s / 4)
        if self._spark is not None:
            self._spark.close(timeout_s / 2)

    def _open_spark(self) -> None:
        """Start Spark; where there is no Java, wait until there is."""
        # Takes a second, which the first answers need not wait for.
        from accord.pipeline.spark_service import SparkService  # noqa: PLC0415

        while not self._closing.is_set():
            spark = SparkService(self._start, self._archive, self._on_batch)
            try:
                self._spark = spark
                spark.open()
            except JavaError as error:
                self._spark = None
                self._set("partial", f"events are not archived, and there are no reports: {error}")
                self._closing.wait(_JAVA_AGAIN_S)
                continue
            with self._lock:
                self._has_spark = True
                for node in self._nodes.values():
                    node.join_spark(spark)
            return

    def _set(self, state: str, problem: str) -> None:
        if problem != self._health.problem:
            _log.info("pipeline: %s %s", state, problem)
        self._health = structs.replace(self._health, state=state, problem=problem)
        for node in list(self._nodes.values()):
            self.tick_node(node)

    def _on_batch(self, done: BatchDone) -> None:
        for node, batch in done.nodes.items():
            service = self._nodes.get(node)
            if service is not None:
                service.count(batch)
