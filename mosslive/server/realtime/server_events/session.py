"""`session.*` and `conversation.created`: the session that a client sees."""

from typing import Any

from mosslive.server.api_errors import Event


def created(session: dict[str, Any]) -> Event:
    """`session`: its document, configuration included."""
    return {"type": "session.created", "session": session}


def updated(session: dict[str, Any]) -> Event:
    """`session`: its document, configuration included."""
    return {"type": "session.updated", "session": session}


def conversation_created(conversation_id: str) -> Event:
    conversation = {"id": conversation_id, "object": "realtime.conversation"}
    return {"type": "conversation.created", "conversation": conversation}
