"""`error`: a client event was refused, or the server failed."""

from mosslive.server.api_errors import ApiError, Event, error_event


def error(api_error: ApiError, client_event_id: object = None) -> Event:
    """The same JSON that a transport sends outside a session, so `api_errors` builds it."""
    return error_event(api_error, client_event_id)
