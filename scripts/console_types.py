"""Write the node's OpenAPI document for the console, from which its types are generated.

No node is started: the document follows from the operations alone. Beside it is the digest that is
committed; texts are left out of both, so that rewording a docstring changes nothing.
"""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from accord.operations.documents import openapi

FOLDER: Final = Path(__file__).parent.parent / "console" / "src" / "api"
DIGEST: Final = FOLDER / "openapi.sha256"
_TEXTS: Final = ("description", "summary")


def document() -> bytes:
    """The document without texts and without the version of the product."""
    found = _without_texts(msgspec.json.decode(msgspec.json.encode(openapi("0"))))
    return msgspec.json.encode(found, order="deterministic")


def digest() -> str:
    return sha256(document()).hexdigest() + "\n"


def _without_texts(found: Any) -> Any:
    if isinstance(found, dict):
        return {
            name: _without_texts(value)
            for name, value in found.items()
            if not (name in _TEXTS and isinstance(value, str))
        }
    if isinstance(found, list):
        return [_without_texts(each) for each in found]
    return found


def main() -> int:
    (FOLDER / "openapi.json").write_bytes(document())
    DIGEST.write_text(digest())
    return 0


if __name__ == "__main__":
    sys.exit(main())
