"""The parts of the OpenAPI description that depend on models and limits: bodies of requests, and errors."""

from typing import Any

from lockstep.serve.api_fields import ErrorResponse
from lockstep.serve.limits import Limits
from lockstep.serve.request_fields import FORM, JSON, MULTIPART
from lockstep.serve.served_models import AUTO, ServedModels

Schema = dict[str, Any]

ERRORS = {
    400: "A field is missing or wrong, a limit is exceeded, or a language is not served.",
    403: "The API key is missing or not valid.",
    408: "The request arrived too slowly.",
    413: "The body is too large.",
    415: "The body has another content type than those listed.",
    429: "Too many sentences wait already. Try again after the seconds of Retry-After.",
    500: "The translation failed.",
    504: "The translation took too long.",
}


def describe_errors(*statuses: int) -> dict[int | str, Schema]:
    return {status: {"model": ErrorResponse, "description": ERRORS[status]} for status in statuses}


def describe_translate(models: ServedModels, limits: Limits) -> Schema:
    """Describes the body of `POST /translate`."""
    bodies = {}
    for media_type in (JSON, FORM, MULTIPART):
        is_json = media_type == JSON
        text = {"type": "string", "maxLength": limits.characters}
        texts = {
            "type": "array",
            "items": {"type": "string"},
            "minItems": 0 if is_json else 1,
            "maxItems": limits.texts,
        }
        what = (
            f"A text, or several that have at most {limits.characters:,} characters together. A form repeats the field."
        )
        fields: dict[str, Schema] = {
            "q": {"anyOf": [text, texts], "description": what},
            "format": _make_optional({"type": "string", "enum": ["text", "html"], "default": "text"}, is_json),
            "alternatives": _describe_alternatives(limits, is_json),
            "api_key": _describe_key(is_json),
        }
        bodies[media_type] = _describe_object(fields, ["q"], models)
    return _describe_body(bodies)


def describe_detect(limits: Limits) -> Schema:
    """Describes the body of `POST /detect`."""
    text = {"type": "string", "maxLength": limits.characters}
    return _describe_body(
        {
            media_type: _describe_object({"q": text, "api_key": _describe_key(media_type == JSON)}, ["q"])
            for media_type in (JSON, FORM, MULTIPART)
        }
    )


def describe_page_request(models: ServedModels, limits: Limits) -> Schema:
    """Describes the body of `POST /page/translate`."""
    fields: dict[str, Schema] = {
        "text": {"type": "string", "maxLength": limits.characters},
        "alternatives": {"type": "integer", "minimum": 0, "maximum": limits.alternatives, "default": 0},
        "api_key": _describe_key(True),
    }
    return _describe_body({JSON: _describe_object(fields, ["text"], models, for_page=True)})


def _describe_alternatives(limits: Limits, is_json: bool) -> Schema:
    schema = {"type": "integer", "minimum": 0, "maximum": limits.alternatives, "default": 0}
    return _make_optional(schema, is_json)


def _describe_key(is_json: bool) -> Schema:
    what = "Only if the server needs a key. It may be sent as a bearer token instead."
    return _make_optional({"type": "string"}, is_json) | {"description": what}


def _make_optional(schema: Schema, may_be_null: bool) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]} if may_be_null else schema


def _describe_object(
    fields: dict[str, Schema], required: list[str], models: ServedModels | None = None, for_page: bool = False
) -> Schema:
    """Describes an object with these fields, and with source and target if there are models."""
    schema: Schema = {"type": "object", "properties": fields, "required": required}
    if models is None:
        return schema
    choices = []
    for target in models.languages:
        sources = models.list_sources(target)
        if not for_page:
            sources = [*([AUTO] if sources else []), *sources, target]
        if sources:
            choices.append({"properties": {"source": {"enum": sources}, "target": {"enum": [target]}}})
    code = {
        "type": "string",
        "description": "A language code of /languages" + ("." if for_page else ", or auto as source."),
    }
    return schema | {
        "properties": fields | {"source": code, "target": code},
        "required": [*required, "source", "target"],
        "anyOf": choices,
    }


def _describe_body(schemas: dict[str, Schema]) -> Schema:
    content = {media_type: {"schema": schema} for media_type, schema in schemas.items()}
    return {"requestBody": {"required": True, "content": content}}
