from __future__ import annotations

import numpy as np

from accord.apps.load.load import Samples


def test_percentiles() -> None:
    samples = Samples()
    assert (len(samples), samples.percentile(50), samples.most) == (0, 0.0, 0)
    samples.add(np.arange(0, 51))
    samples.add(np.arange(51, 101))
    assert [samples.percentile(share) for share in (50, 90, 99)] == [50, 90, 99]
    assert samples.most == 100


def test_of_very_many_every_second_is_enough() -> None:
    samples = Samples(limit=1_000)
    for start in range(0, 100_000, 500):
        samples.add(np.arange(start, start + 500))
    assert len(samples) <= 1_000
    assert samples.most == 99_999
    # Those that came late are held more densely.
    assert samples.percentile(99) <= 99_999


def test_nothing_new() -> None:
    samples = Samples()
    samples.add(np.arange(0))
    assert samples.percentile(99) == 0.0
