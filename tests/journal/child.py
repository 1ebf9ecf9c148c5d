"""A process that writes numbered records until it is killed, and says what is committed.

    python child.py FOLDER FIRST

Each line it prints is an offset up to which everything is durable.
"""

from __future__ import annotations

import os
import sys
import threading

from accord.journal.options import JournalOptions
from accord.journal.writer import AppendRefused, Journal


def main() -> None:
    directory, number = sys.argv[1], int(sys.argv[2])
    has_room = threading.Event()

    def tell(offset: int) -> None:
        has_room.set()
        os.write(1, b"%d\n" % offset)

    options = JournalOptions(segment_bytes=200_000, batch_bytes=20_000, backlog_bytes=100_000)
    journal = Journal.open(directory, options, on_commit=tell)
    assert journal.next_offset == number, (journal.next_offset, number)
    while True:
        records = [b"%d:" % (number + index) + b"x" * (number % 300) for index in range(7)]
        has_room.clear()
        if isinstance(journal.append(records), AppendRefused):
            has_room.wait()
        else:
            number += len(records)


if __name__ == "__main__":
    main()
