"""Limits that follow from the page pool and the model: rows per conversation, sessions, requests.

Computed once, when the model is loaded. Each session and each HTTP request holds one conversation.
Invariant: if all are open at once, the pool has enough pages for the maximal length of each.
Pure functions; does not know the endpoints.
"""

from dataclasses import dataclass

from mosslive.config import SECONDS_PER_CODE
from mosslive.config.capabilities import Capabilities
from mosslive.engine import Engine
from mosslive.engine.allowance import LEAST_ROWS, rows_for
from mosslive.engine.settings import EngineSettings
from mosslive.errors import MossliveError
from mosslive.server.settings import ServerSettings

TUNED_ROWS = 10_240  # MOSS-Speech was tuned with this; default if the model states nothing
_TASK_ROWS = 512  # a few sentences to read aloud and 20 s of speech
_PAGE_ROWS = 16


@dataclass(frozen=True)
class Limits:
    sessions: int
    requests: int
    pool_rows: int  # limit of a conversation by the pool
    context_rows: int  # limit of a conversation by the pool, the model and the settings

    def document(self) -> dict[str, object]:
        """The fields of the log record `ready`."""
        return {
            "context_rows": self.context_rows,
            "context_s": round(self.context_rows * SECONDS_PER_CODE, 1),
            "sessions": self.sessions,
            "requests": self.requests,
        }


def wanted_rows(settings: ServerSettings, capabilities: Capabilities) -> int:
    """Rows that a conversation should have."""
    return capabilities.limit(settings.context_rows) or TUNED_ROWS


def goal_rows(settings: ServerSettings, capabilities: Capabilities) -> int:
    """Size of a pool, in rows, that limits no conversation."""
    conversations = settings.max_sessions + settings.max_requests
    wanted = wanted_rows(settings, capabilities)
    return conversation_rows(conversations, max(wanted, _TASK_ROWS), EngineSettings())


def conversation_rows(conversations: int, rows: int, settings: EngineSettings) -> int:
    """Size of a pool, in rows, with room for so many conversations of `rows` rows."""
    return rows_for(conversations, rows, _PAGE_ROWS, settings)


def least_rows() -> int:
    """Size of the smallest pool that a server can run with: one session and one request."""
    return rows_for(2, LEAST_ROWS, _PAGE_ROWS, EngineSettings())


def limits_of(engine: Engine, settings: ServerSettings, capabilities: Capabilities) -> Limits:
    """Computes the limits.

    If the pool is too small for all conversations that the settings allow, their number is reduced
    until each can have `LEAST_ROWS` rows, or `wanted_rows` if that is less. At least three quarters
    of them are then sessions. Raises `MossliveError` if not even two conversations fit.
    """
    wanted = min(wanted_rows(settings, capabilities), engine.config.max_position_embeddings)
    sessions, requests = settings.max_sessions, settings.max_requests
    fitting = engine.most_conversations(min(wanted, LEAST_ROWS))
    if fitting < sessions + requests:
        if fitting < 2:
            raise MossliveError(
                f"the engine has {engine.stats().pages} pages, too few for one session and one "
                f"request of {min(wanted, LEAST_ROWS)} rows each; free some memory for pages"
            )
        sessions = min(sessions, fitting - max(1, min(requests, fitting // 4)))
        requests = min(requests, fitting - sessions)
    pool_rows = engine.rows_each(sessions + requests)
    return Limits(sessions, requests, pool_rows, min(wanted, pool_rows))
