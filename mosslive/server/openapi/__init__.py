"""The description of the HTTP endpoints in OpenAPI 3.1: `document` makes it."""

from mosslive.server.openapi.document import document

__all__ = ["document"]
