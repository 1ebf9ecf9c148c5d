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

from accord.core.queries.messages import FromNode, FromPipeline, Health, StartPipeline
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
    """The process between its first message and its end."""

    def __init__(self, start: StartPipeline, send: Callable[[FromPipeline], object]) -> None:
        self._start = start
        self._health = Health(build=BUILD)
        self._archive = Archive(start.archive, tuple(start.journals_by_node()))
        self._nodes = {start.node: self._node_service(start.node, start.journal, send)}
        self._spark: SparkService | None = None
        self._closing = threading.Event()

    def open(self) -> None:
        """Answer questions, then start Spark; SessionError or TablesError if that fails."""
        start = self._start
        tables.check_declared(start.declared)
        convert(self._archive.storage)
        for node in self._nodes.values():
            node.start()
        self._set("partial", "")
        self._open_spark()
        if not self._closing.is_set():
            self._set("ready", "")

    def handle(self, message: FromNode) -> None:
        """Handle a message of the node that started this process."""
        self._nodes[self._start.node].handle(message)

    def tick(self) -> None:
        """Once a second: report health, and check what runs."""
        health = self._health
        if self._spark is not None:
            health = self._spark.describe(health)
            self._spark.tick()
        for node in list(self._nodes.values()):
            node.tick(health)

    def why_broken(self) -> str:
        """Why a new process is needed; "" if none is."""
        return "" if self._spark is None else self._spark.why_broken()

    def fail(self, problem: str) -> None:
        self._set("failed", problem)

    def close(self, timeout_s: float) -> None:
        """Stop what runs, then Spark, within about this time."""
        self._closing.set()
        self._health = structs.replace(self._health, state="stopping")
        for node in self._nodes.values():
            node.close(timeout_s / 4)
        if self._spark is not None:
            self._spark.close(timeout_s / 2)

    def _node_service(
        self, node: str, journal: str, send: Callable[[FromPipeline], object]
    ) -> NodeService:
        return NodeService(node, journal, self._archive, send, timeout_s=self._start.timeout_s)

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
            for node in self._nodes.values():
                node.join_spark(spark)
            return

    def _set(self, state: str, problem: str) -> None:
        if problem != self._health.problem:
            _log.info("pipeline: %s %s", state, problem)
        self._health = structs.replace(self._health, state=state, problem=problem)
        self.tick()

    def _on_batch(self, done: BatchDone) -> None:
        for node, batch in done.nodes.items():
            if node in self._nodes:
                self._nodes[node].count(batch)
