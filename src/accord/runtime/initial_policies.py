"""Loads the policies a node starts with: the newest version, or a configured file that is newer."""

from __future__ import annotations

import hashlib
from pathlib import Path

from accord.core.model.errors import PolicyError, file_problem
from accord.core.policy.policy_set import (
    PolicySet,
    parse_policy_set,
    parse_stored_policy_set,
    render_policy_set,
    with_version,
)
from accord.operations.policies import MAX_TEXT, Version
from accord.runtime.logs import get_log
from accord.runtime.policy_admin import wall_ms
from accord.runtime.policy_store import PolicyStore
from accord.shaping.shaper_checks import check_shapers

log = get_log(__name__)


def load_initial_policies(
    store: PolicyStore, file: Path | None = None, *, changed_ms: int | None = None
) -> PolicySet:
    """The newest version of the policies, or the configured file if that is newer.

    A file is newer if its content differs from what was last loaded from it, so changes at run time
    survive restarts until the file is edited.
    """
    stored = _newest_policy_set(store)
    if file is None:
        return stored or PolicySet()
    data = _read_file(file)
    digest = hashlib.sha256(data).hexdigest()
    if stored is not None and digest == store.source:
        return stored
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PolicyError(f"{file}, line {line}", "expected UTF-8 text") from None
    try:
        policy_set = parse_policy_set(text, is_json=file.suffix == ".json")
        check_shapers(policy_set)
    except PolicyError as error:
        raise PolicyError(f"{file}, {error.place}", error.problem) from None
    policy_set = with_version(policy_set, store.last_number + 1)
    version = Version(
        version=policy_set.version,
        changed_ms=wall_ms() if changed_ms is None else changed_ms,
        what=f"taken from {file.name}",
    )
    store.write(version, render_policy_set(policy_set), source=digest)
    log.info("policies: loaded from file", file=str(file), version=policy_set.version)
    return policy_set


def _newest_policy_set(store: PolicyStore) -> PolicySet | None:
    while (found := store.newest()) is not None:
        version, text = found
        try:
            return with_version(parse_stored_policy_set(text), version.version)
        except PolicyError as error:
            store.skip(version.version, str(error))
    return None


def _read_file(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_TEXT + 1)
    except OSError as error:
        raise PolicyError(str(file), file_problem(error)) from None
    if len(data) > MAX_TEXT:
        raise PolicyError(str(file), f"expected at most {MAX_TEXT} bytes")
    return data
