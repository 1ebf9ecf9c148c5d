"""Several questions at once, and questions that are called off, on a real Spark."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.pipeline.asking import World, made
from tests.pipeline.journals import START_MS

from accord.core.queries.messages import EventQuery, FromPipeline, Page, PageQuery, QueryFailure
from accord.pipeline.query.scheduler import CANCELLED, QueryJob, QueryScheduler
from accord.pipeline.query.spark_engine import SparkEngine


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.publish([made(n, START_MS + n, f"uav/{n % 3}") for n in range(60)])
    world.follow(40)
    yield world
    world.close()


def linger(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    time.sleep(300)
    yield from batches


def test_a_spark_job_is_cancelled(spark: SparkSession, world: World) -> None:
    answers: queue.Queue[FromPipeline] = queue.Queue()
    engine = SparkEngine(spark, world.tables.storage)
    began = threading.Event()

    def work(job: QueryJob) -> FromPipeline:
        with engine.tagged(job.tag):
            began.set()
            engine.spark.range(1).mapInArrow(linger, "id long").toArrow()
        return Page(id=job.id, events=())

    turns = QueryScheduler(answers.put, engine.interrupt)
    turns.start()
    turns.put(QueryJob(1, 3, work))
    assert began.wait(30)
    tracker = spark.sparkContext.statusTracker()
    while not tracker.getActiveJobsIds():
        time.sleep(0.01)
    assert turns.running == 1
    turns.cancel(1)
    answer = answers.get(timeout=60)
    assert isinstance(answer, QueryFailure)
    assert (answer.id, answer.problem) == (1, CANCELLED)
    turns.put(QueryJob(2, 3, lambda job: Page(id=job.id, events=())))
    assert answers.get(timeout=60) == Page(id=2, events=())
    turns.stop(10.0)


def test_questions_at_once_get_their_own_answers(spark: SparkSession, world: World) -> None:
    answers: queue.Queue[FromPipeline] = queue.Queue()
    engine = SparkEngine(spark, world.tables.storage)
    queries = world.queries(engine)
    turns = QueryScheduler(answers.put, engine.interrupt)
    asks = {
        id_: EventQuery(channel=f"uav/{id_ % 3}", is_newest_first=id_ % 2 == 0)
        for id_ in range(1, 7)
    }

    def page(query: PageQuery) -> FromPipeline:
        return queries.page(query)

    for id_, ask in asks.items():
        query = PageQuery(id=id_, ask=ask)
        turns.put(QueryJob(id_, id_ % 8, lambda _job, query=query: page(query)))  # type: ignore[misc]
    turns.start()
    for _ in asks:
        answer = answers.get(timeout=60)
        assert isinstance(answer, Page)
        assert list(answer.events) == world.expected(asks[answer.id])
    turns.stop(10.0)
