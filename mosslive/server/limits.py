"""What the pages of the engine and the model allow: rows of a conversation, sessions, requests.

Computed once, when the model is loaded. Sessions and HTTP replies each hold one conversation.
Invariant: if all of them are open at once, each finds pages for as many rows as it may have.
"""

from dataclasses import dataclass

from mosslive.config import SECONDS_PER_CODE
from mosslive.config.capabilities import Capabilities
from mosslive.engine import Engine
from mosslive.engine.allowance import LEAST_ROWS, rows_for
from mosslive.engine.settings import EngineSettings
from mosslive.errors import MossliveError
from mosslive.server.settings import ServerSettings

TUNED_ROWS = 10_240  # what MOSS-Speech was tuned with; used where nothing is stated
_TASK_ROWS = 512  # some sentences to read aloud, and their speech: 20 s of it
_PAGE_ROWS = 16


@dataclass(frozen=True)
class Limits:
    sessions: int
    requests: int
    pool_rows: int  # a conversation may have so many by the pool
    context_rows: int  # and so many by the pool, the model and the settings

    def document(self) -> dict[str, object]:
        """For the log."""
        return {
            "context_rows": self.context_rows,
            "context_s": round(self.context_rows * SECONDS_PER_CODE, 1),
            "sessions": self.sessions,
            "requests": self.requests,
        }


def wanted_rows(settings: ServerSettings, taught: Capabilities) -> int:
    """Rows a conversation should have. Raises `ConfigError` if the settings ask for more rows than
    the model was taught."""
    return taught.limit(settings.context_rows) or TUNED_ROWS


def goal_rows(settings: ServerSettings, taught: Capabilities) -> int:
    """Rows of a pool in which nobody is limited by pages."""
    conversations = settings.max_sessions + settings.max_requests
    wanted = wanted_rows(settings, taught)
    return rows_for(conversations, max(wanted, _TASK_ROWS), _PAGE_ROWS, EngineSettings())


def limits_of(engine: Engine, settings: ServerSettings, taught: Capabilities) -> Limits:
    """If the pool is too small for all conversations that the settings allow, fewer are allowed:
    so many that each may have `LEAST_ROWS`, or all rows it should have. Requests then leave three
    quarters to sessions."""
    wanted = min(wanted_rows(settings, taught), engine.config.max_position_embeddings)
    sessions, requests = settings.max_sessions, settings.max_requests
    held = engine.most_conversations(min(wanted, LEAST_ROWS))
    if held < sessions + requests:
        if held < 2:
            raise MossliveError(
                f"the engine has {engine.stats().pages} pages: too few for a session and a request "
                f"of {min(wanted, LEAST_ROWS)} rows each; allowed: more memory for pages"
            )
        sessions = min(sessions, held - max(1, min(requests, held // 4)))
        requests = min(requests, held - sessions)
    pool_rows = engine.rows_each(sessions + requests)
    return Limits(sessions, requests, pool_rows, min(wanted, pool_rows))
