"""Reads the fields of a request: from JSON, or from a form in either encoding."""

import json
from typing import TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import BaseModel, ValidationError
from python_multipart.multipart import Field, File, create_form_parser

from lockstep.serve.api_error import ApiError

JSON, FORM, MULTIPART = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"
MOST_FIELDS = 1000
REPEATED = "q"
"""The field that is a list if a form has it several times."""

Fields = TypeVar("Fields", bound=BaseModel)


async def read_fields(request: Request, kind: type[Fields]) -> Fields:
    """Returns the fields of a request. Raises a sentence if they are not of this kind."""
    body = await request.body()
    header = request.headers.get("content-type", "")
    media_type = header.partition(";")[0].strip().lower()
    try:
        if media_type == JSON:
            return kind.model_validate(_read_json(body), strict=True)
        if media_type in (FORM, ""):
            return kind.model_validate(_collect(_read_form(body)))
        if media_type == MULTIPART:
            return kind.model_validate(_collect(_read_multipart(body, header)))
    except ValidationError as error:
        raise ApiError(400, _describe(error)) from None
    raise ApiError(415, "Send JSON or a form.")


def _read_json(body: bytes) -> object:
    try:
        return json.loads(body.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise _not_utf8() from None
    except (ValueError, RecursionError):
        raise ApiError(400, "The body is not JSON.") from None


def _read_form(body: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except UnicodeDecodeError:
        raise _not_utf8() from None
    except ValueError:
        raise ApiError(400, f"The form has more than {MOST_FIELDS} fields.") from None


def _read_multipart(body: bytes, header: str) -> list[tuple[str, str]]:
    fields: list[Field] = []
    files: list[File] = []
    try:
        parser = create_form_parser(
            {"Content-Type": header.encode("latin-1")},
            fields.append,
            files.append,
            {"MAX_MEMORY_FILE_SIZE": len(body) + 1},
        )
        parser.write(body)
        parser.finalize()
    except ValueError:
        raise ApiError(400, "The body is not a form.") from None
    if files:
        raise ApiError(400, "The form has a file. Send text as a field.")
    try:
        return [((field.field_name or b"").decode(), (field.value or b"").decode()) for field in fields]
    except UnicodeDecodeError:
        raise _not_utf8() from None


def _collect(pairs: list[tuple[str, str]]) -> dict[str, object]:
    """Returns the fields of a form by name."""
    repeated = [value for name, value in pairs if name == REPEATED]
    fields: dict[str, object] = dict(pairs)
    return fields | {REPEATED: repeated} if len(repeated) > 1 else fields


def _not_utf8() -> ApiError:
    return ApiError(400, "The request is not UTF-8.")


def _describe(error: ValidationError) -> str:
    """Returns a sentence about the first field that is wrong, without its value."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    if not first["loc"]:
        return "The body must be a JSON object."
    name = first["loc"][0]
    if first["type"] == "missing":
        return f"The field {name} is missing."
    return f"The field {name} is wrong: {first['msg'].lower()}."
