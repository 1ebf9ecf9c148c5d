"""A process that writes a journal, with real syncs, until its input ends.

    python writer.py FOLDER RATE

Each line it prints is an offset up to which everything is durable; the last one tells them all.
"""

from __future__ import annotations

import os
import sys

from tests.pipeline.journals import ledger_record, record
from tests.pipeline.kills.processes import end_of_input

from accord.journal.options import JournalOptions
from accord.journal.writer import AppendRefused, Journal

CHANNELS = ("uav/imagery", "uav/track", "ground/report", "weather", "odd channel/1")
TURN_S = 0.02


def main() -> None:
    folder, rate = sys.argv[1], int(sys.argv[2])
    ended = end_of_input()
    options = JournalOptions(segment_bytes=2_000_000, batch_bytes=50_000)
    journal = Journal.open(folder, options, on_commit=lambda at: os.write(1, b"%d\n" % at))
    number = journal.next_offset
    while not ended.wait(TURN_S):
        group = []
        for _ in range(max(1, round(rate * TURN_S))):
            channel = CHANNELS[number % len(CHANNELS)]
            is_event = number % 50
            made = record(number, channel=channel, size=number % 200)
            group.append(made if is_event else ledger_record(number, 3))
            number += 1
        assert not isinstance(journal.append(group), AppendRefused)
    journal.flush()
    journal.close()


if __name__ == "__main__":
    main()
