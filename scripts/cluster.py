"""Start a standalone Spark cluster on loopback, and stop it with Ctrl-C.

    python scripts/cluster.py --workers 2 --memory 1024

Prints the address for `accord up --spark`. Nothing of it is reachable from other machines.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from threading import Event

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.spark_cluster import SparkCluster


def main() -> None:
    parser = argparse.ArgumentParser(description="a Spark cluster on this machine")
    parser.add_argument("--workers", type=int, default=2, help="(default: 2)")
    parser.add_argument("--memory", type=int, default=1024, metavar="MB", help="of each (1024)")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="accord-cluster-") as folder,
        SparkCluster(Path(folder), workers=options.workers, memory_mb=options.memory) as cluster,
        suppress(KeyboardInterrupt),
    ):
        print(f"accord up --spark {cluster.url}", flush=True)
        Event().wait()


if __name__ == "__main__":
    main()
