"""What operations answer, as OpenAPI says it: structs that FastAPI does not know."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

REFERENCE: Final = "#/components/schemas/{name}"


def returns(type_: type[Struct], **others: type[Struct]) -> dict[int | str, dict[str, Any]]:
    """For `responses=`; `others` by their status code, such as `_404`."""
    codes = {code.removeprefix("_"): each for code, each in others.items()}
    return {code: _described(each) for code, each in {"200": type_, **codes}.items()}


def _described(type_: type[Struct]) -> dict[str, Any]:
    schema = {"$ref": REFERENCE.format(name=type_.__name__)}
    words = (type_.__doc__ or "").strip()
    return {"description": words, "content": {"application/json": {"schema": schema}}}
