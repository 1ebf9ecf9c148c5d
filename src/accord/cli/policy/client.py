"""HTTP client for a node's policies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from accord.cli.http_client import HttpReply, NodeHttpClient
from accord.core.model.errors import AccordError, PolicyError
from accord.core.policy.explain import Explanation
from accord.core.policy.policy_set import PolicySet, policy_set_from
from accord.http.schemas import JSON, POLICIES, TOML, Changed, History, Problem
from accord.runtime.policy_admin import DryRun, ExplainRequest
from accord.runtime.policy_store import Version

TIMEOUT_S: Final = 60.0  # a change of many policies takes a while

_ADVICE: Final = {
    401: "give --user and ACCORD_PASSWORD",
    403: "ask for the right to policies (may.policies in accord.toml)",
    404: "check --url; a node without policies is too old for this command",
}

T = TypeVar("T")


class PolicyRefusedError(AccordError):
    """A node refused a change, or a request was invalid."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(": ".join(filter(None, (problem.place, problem.error))))


class PolicyClient:
    """One request per call.

    Raises `PolicyRefusedError`, or `UnreachableError` if no node replies.
    """

    def __init__(self, url: str, user: str | None, authority: Path | None) -> None:
        self._node = NodeHttpClient(url, user, authority)

    def policies(self) -> PolicySet:
        answer = self._request("GET", POLICIES)
        try:
            return policy_set_from(msgspec.json.decode(answer.body))
        except (msgspec.DecodeError, PolicyError) as error:
            raise self._node.decode_error(error) from None

    def toml(self) -> str:
        return self._request("GET", POLICIES, headers={"Accept": TOML}).body.decode(
            errors="replace"
        )

    def replace(self, toml: str, if_version: int | None = None) -> int:
        return self._change("PUT", POLICIES, toml, if_version)

    def patch(self, settings: Mapping[str, object], if_version: int | None = None) -> int:
        return self._change("PATCH", POLICIES, settings, if_version)

    def put_policy(
        self, name: str, policy: Mapping[str, object], if_version: int | None = None
    ) -> int:
        return self._change("PUT", f"{POLICIES}/{quote(name, safe='')}", policy, if_version)

    def remove_policy(self, name: str, if_version: int | None = None) -> int:
        return self._change("DELETE", f"{POLICIES}/{quote(name, safe='')}", None, if_version)

    def rollback(self, version: int, if_version: int | None = None) -> int:
        return self._change("POST", f"{POLICIES}/rollback", {"version": version}, if_version)

    def history(self) -> tuple[Version, ...]:
        return self._read(self._request("GET", f"{POLICIES}/history"), History).history

    def dry_run(self, toml: str) -> DryRun:
        answer = self._request("POST", f"{POLICIES}/dry-run", toml.encode(), {"Content-Type": TOML})
        return self._read(answer, DryRun)

    def explain(self, question: ExplainRequest) -> Explanation:
        fields: dict[str, Any] = {
            "operation": question.operation,
            "channel": question.channel,
            "client": question.client,
            "user": question.user,
            "group": question.groups,
            "publisher": question.publisher,
            "payload_bytes": question.payload_bytes,
        }
        if question.attributes is not None:
            fields["attribute"] = [f"{name}={value}" for name, value in question.attributes.items()]
        given = {name: value for name, value in fields.items() if value not in (None, "")}
        answer = self._request("GET", f"{POLICIES}/explain?{urlencode(given, doseq=True)}")
        return self._read(answer, Explanation)

    def _change(
        self, method: str, path: str, body: str | Mapping[str, object] | None, version: int | None
    ) -> int:
        headers = {} if version is None else {"If-Match": f'"{version}"'}
        data = None
        if isinstance(body, str):
            data, headers["Content-Type"] = body.encode(), TOML
        elif body is not None:
            data, headers["Content-Type"] = msgspec.json.encode(body), JSON
        return self._read(self._request(method, path, data, headers), Changed).version

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpReply:
        answer = self._node.request(
            path, method=method, body=body, headers=headers, timeout_s=TIMEOUT_S
        )
        if answer.code == 200:
            return answer
        try:
            problem = msgspec.json.decode(answer.body, type=Problem)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self._node.status_error(answer, _ADVICE) from None
        raise PolicyRefusedError(problem)

    def _read(self, answer: HttpReply, type_: type[T]) -> T:
        try:
            return msgspec.json.decode(answer.body, type=type_)
        except msgspec.DecodeError as error:
            raise self._node.decode_error(error) from None
