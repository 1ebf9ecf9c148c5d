from __future__ import annotations

from accord.core.scheduling.tasks import Tasks, WorkerJob


def test_a_job_waits_as_a_task_and_tells_its_outcome() -> None:
    told: list[tuple[object, int]] = []
    tasks = Tasks(count_limit=10, bytes_limit=1_000)
    for importance in (2, 5):
        done = lambda outcome, spent_us: told.append((outcome, spent_us))  # noqa: E731
        tasks.put(WorkerJob(importance, done, 100, 20_000, importance, 0, 0, "uav"))
    job = tasks.take()
    assert isinstance(job, WorkerJob)
    assert (job.work, job.channel) == (5, "uav")
    job.done("small", 7)
    assert told == [("small", 7)]
