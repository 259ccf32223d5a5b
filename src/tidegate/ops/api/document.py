"""The OpenAPI document: what FastAPI knows of its routes, completed with access, problems and hot routes."""

import functools
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any, Final

from tidegate.ops.api.bodies import JSON
from tidegate.ops.api.document_parts import (
    HOT_OPERATIONS,
    OPEN_PATHS,
    PROBLEM_SCHEMA,
    SECURITY_SCHEMES,
    SHARED_SCHEMAS,
    Json,
    ref,
)
from tidegate.ops.api.idempotency import LONGEST_KEY
from tidegate.ops.api.problems import (
    BAD_INPUT,
    CONFLICT,
    CONTENT_TYPE,
    FORBIDDEN,
    INTERNAL,
    MALFORMED,
    NOT_FOUND,
    TOO_LARGE,
    TOO_MANY,
    TOO_SLOW,
    UNAUTHENTICATED,
    UNAVAILABLE,
    UNSUPPORTED_TYPE,
    ProblemError,
    ProblemKind,
)
from tidegate.ops.api.routes import DeclaredRoute

DESCRIPTION: Final = """\
Messages, broadcasts, dead letters, bots, limits, reminders, jobs and history of a Tidegate.

Times are seconds since the Unix epoch. Lists have pages: give `next_cursor` as `cursor`. Errors are problem
details (RFC 9457). Every request but those for health needs an API token (`Authorization: Bearer tg_…`) or
the cookie of a session; the role that an operation needs is its `x-role`, and a token of one bot is kept to
that one. Give `Idempotency-Key` with a request that changes something, to be able to repeat it safely.
"""
ALWAYS: Final = (UNAUTHENTICATED, FORBIDDEN, BAD_INPUT, INTERNAL, UNAVAILABLE)
OF_BODY: Final = (MALFORMED, TOO_SLOW, TOO_LARGE, UNSUPPORTED_TYPE, TOO_MANY)
OF_CHANGE: Final = (NOT_FOUND, CONFLICT)
MOST_NESTED: Final = 6  # levels of an example
_UNUSED: Final = ("HTTPValidationError", "ValidationError")  # FastAPI's own
_KEY_PARAMETER: Final[Json] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Of your own making, such as a UUID: the request is done once, and its answer repeated.",
    "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": "^[!-~]+$"},
    "example": "8e03978e-40d5-43dd-bc93-6894a57f9324",
}
_BY_TYPE: Final[Mapping[str, object]] = {
    "string": "…",
    "integer": 1,
    "number": 1.0,
    "boolean": True,
    "null": None,
}


@functools.cache
def openapi_document() -> Json:
    """Return the document. It is the same for every gate."""
    from tidegate.ops.api.app import declared_routes, make_routes  # noqa: PLC0415  (which serves this document)

    found = make_routes().openapi()
    schemas = {name: schema for name, schema in found["components"]["schemas"].items() if name not in _UNUSED}
    schemas |= {"Problem": PROBLEM_SCHEMA, **SHARED_SCHEMAS}
    paths: dict[str, Json] = {}
    for route in declared_routes():
        method = route.method.lower()
        operation = HOT_OPERATIONS.get((method, route.path)) or found["paths"][route.path][method]
        paths.setdefault(route.path, {})[method] = _completed(operation, route, schemas)
    return {
        "openapi": found["openapi"],
        "info": {"title": "Tidegate", "version": version("tidegate"), "description": DESCRIPTION},
        "security": [{"token": []}, {"session": []}],
        "paths": paths | OPEN_PATHS,
        "components": {"schemas": dict(sorted(schemas.items())), "securitySchemes": SECURITY_SCHEMES},
    }


def _completed(operation: Json, route: DeclaredRoute, schemas: Mapping[str, Json]) -> Json:
    parameters = list(operation.get("parameters", []))
    if route.action is not None:
        parameters.append(_KEY_PARAMETER)
    answers = {status: one for status, one in operation["responses"].items() if status != "422"}
    for answer in answers.values():
        for media_type, content in answer.get("content", {}).items():
            if media_type == JSON and "example" not in content:
                content["example"] = example_of(content.get("schema", {}), schemas)
    return {
        **operation,
        **({"parameters": parameters} if parameters else {}),
        "responses": answers | {str(kind.status): _problem(kind) for kind in _kinds(operation, route)},
        "x-role": str(route.access.role),
        "x-scope": str(route.access.scope),
    }


def _kinds(operation: Json, route: DeclaredRoute) -> Iterable[ProblemKind]:
    kinds = list(ALWAYS)
    if "{" in route.path:
        kinds.append(NOT_FOUND)
    if "requestBody" in operation:
        kinds += OF_BODY
    if route.action is not None and route.endpoint is not None:
        kinds += OF_CHANGE
    return sorted(set(kinds), key=lambda kind: kind.status)


def _problem(kind: ProblemKind) -> Json:
    example = ProblemError(kind, "…").content()
    return {
        "description": kind.title,
        "content": {CONTENT_TYPE: {"schema": ref("Problem"), "example": example}},
    }


def example_of(schema: Json, schemas: Mapping[str, Json], depth: int = 0) -> Any:  # noqa: ANN401  (JSON)
    """Return a value of a schema: the example that it gives, or one made of its parts."""
    if "$ref" in schema:
        return example_of(schemas[schema["$ref"].rpartition("/")[2]], schemas, depth)
    given = [schema.get("example"), *schema.get("examples", []), *schema.get("enum", [])]
    given += [schema.get("const"), schema.get("default")]
    for value in given:
        if value is not None:
            return value
    if options := schema.get("anyOf") or schema.get("allOf"):
        return example_of(options[0], schemas, depth)
    if schema.get("type") == "array" and depth < MOST_NESTED:
        return [example_of(schema.get("items", {}), schemas, depth + 1)]
    if schema.get("type") == "object" and depth < MOST_NESTED:
        properties: Mapping[str, Json] = schema.get("properties", {})
        return {name: example_of(one, schemas, depth + 1) for name, one in properties.items()}
    return _BY_TYPE.get(schema.get("type", "null"))
