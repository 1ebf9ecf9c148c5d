"""One HTTP request from inside a network namespace: `ask METHOD URL`, the body on the input."""

from __future__ import annotations

import sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen


def main() -> None:
    method, url = sys.argv[1:]
    body = sys.stdin.buffer.read()
    headers = {"Content-Type": "application/json"}
    request = Request(url, body or None, headers, method=method)  # noqa: S310 - a node's own
    try:
        with urlopen(request, timeout=10) as answer:  # noqa: S310
            code, text = answer.status, answer.read().decode()
    except HTTPError as error:
        code, text = error.code, error.read().decode()
    print(code)
    print(text)


if __name__ == "__main__":
    main()
