"""Compiles the hot modules where that can be done; everywhere else they run as they are.

Only wheels are compiled. Editable installs stay interpreted, so that what is edited is what runs.
"""

import sys

from setuptools import Extension, setup

# mypyc knows no msgspec structs: those of these modules are in modules of their own.
HOT = [
    f"src/accord/{package}/{name}.py"
    for package, names in {
        "core/predicates": ("sets", "terms", "clause", "grid", "partition", "index"),
        "core/scheduling": (
            "parcels",
            "lanes",
            "bins",
            "strategies",
            "queues",
            "outbox",
            "tasks",
            "timers",
            "jobs",
            "link",
            "pacing",
            "egress",
            "flows",
            "shaping",
        ),
        "core/monitoring": ("tally", "counters", "channels", "ledger"),
        "core/qos": ("entity", "contexts", "rules", "grants", "conditions", "policies"),
        "core/node": ("message", "routes", "router", "remotes"),
        "core/overlay": (
            "transit",
            "asking",
            "budgets",
            "delivery",
            "distances",
            "duplicates",
            "exchange",
            "facts",
            "hello",
            "liveness",
            "map",
            "namesakes",
            "needs",
            "overlay",
            "paths",
            "replica",
            "replicas",
            "round_trip",
            "routes",
            "sending",
            "spreading",
            "switching",
            "watchers",
        ),
        "sim": ("node", "clock", "engine", "hosts", "links", "network", "templates"),
        "edges/mqtt": (
            "wire",
            "mapping",
            "message",
            "hub",
            "delivery",
            "accounts",
            "shaping",
            "session",
            "kept",
            "history",
            "past",
            "broker",
            "answering",
            "publishing",
            "handshake",
            "connection",
        ),
    }.items()
    for name in names
]


def extensions() -> list[Extension]:
    if "bdist_wheel" not in sys.argv:
        return []
    from mypyc.build import mypycify  # noqa: PLC0415

    # What the hot modules import may not be installed in a build's own environment.
    options = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
    compiled: list[Extension] = mypycify([*options, *HOT], opt_level="2", debug_level="0")
    for extension in compiled:
        extension.optional = True  # no compiler is no error
    return compiled


setup(ext_modules=extensions())
