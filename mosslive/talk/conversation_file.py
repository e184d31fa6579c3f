"""Saves the turns of a conversation to a file and loads them, to continue it later.

The file is JSON with a version. Loading refuses a file of another model and rows that the model was
not trained on. Knows nothing of engines.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from mosslive.config.files import each_once
from mosslive.errors import MossliveError
from mosslive.rows import ReplyKind, Role, RowIds, RowsError, checked_rows
from mosslive.talk.dialogue import HistoryTurn

_FORMAT = "mosslive-conversation"
_VERSION = 1
_MOST_ROWS = 1 << 20


class BadConversation(MossliveError):
    """Not a conversation file, damaged, or of another model."""


def save_turns(path: str | Path, turns: Sequence[HistoryTurn], ids: RowIds) -> None:
    """Writes under another name and renames the file when it is whole."""
    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "model": _fingerprint(ids),
        "turns": [
            {"role": said.role, "kind": said.kind, "rows": [list(row) for row in said.rows]}
            for said in turns
        ],
    }
    target = Path(path)
    part = target.with_name(f".{target.name}.part")
    try:
        part.write_text(json.dumps(document, separators=(",", ":")) + "\n", encoding="utf-8")
        part.replace(target)
    except OSError as error:
        raise BadConversation(f"{path}: cannot be written: {error}") from None
    finally:
        with suppress(OSError):  # renamed, or the folder cannot be written
            part.unlink()


def load_turns(path: str | Path, ids: RowIds) -> list[HistoryTurn]:
    document = read_saved(path)
    if document["model"] != _fingerprint(ids):
        raise BadConversation(
            f"{path}: saved with another model, whose ids differ; load it with that model"
        )
    if not isinstance(document["turns"], list):
        raise BadConversation(f"{path}: turns is not a list")
    return [_turn(raw, f"{path}: turn {n}", ids) for n, raw in enumerate(document["turns"])]


def read_saved(path: str | Path) -> dict[str, Any]:
    """The document, checked as far as possible without a model."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        document = json.loads(text, object_pairs_hook=each_once)
    except FileNotFoundError:
        raise BadConversation(f"{path}: no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise BadConversation(f"{path}: not a conversation file: {error}") from None
    document = _require_keys(document, {"format", "version", "model", "turns"}, str(path))
    if document["format"] != _FORMAT or document["version"] != _VERSION:
        raise BadConversation(f"{path}: not a conversation of version {_VERSION}")
    return document


def _turn(raw: object, where: str, ids: RowIds) -> HistoryTurn:
    turn = _require_keys(raw, {"role", "kind", "rows"}, where)
    if turn["role"] not in get_args(Role):
        raise BadConversation(f"{where}: role is {turn['role']!r}; allowed: {get_args(Role)}")
    if turn["kind"] not in get_args(ReplyKind):
        raise BadConversation(f"{where}: kind is {turn['kind']!r}; allowed: {get_args(ReplyKind)}")
    if not isinstance(turn["rows"], list):
        raise BadConversation(f"{where}: rows is not a list")
    try:
        return HistoryTurn(
            turn["role"], turn["kind"], tuple(checked_rows(turn["rows"], ids, _MOST_ROWS))
        )
    except RowsError as error:
        raise BadConversation(f"{where}: {error}") from None


def _require_keys(raw: object, names: set[str], where: str) -> dict[str, Any]:
    if not isinstance(raw, dict) or set(raw) != names:
        raise BadConversation(f"{where}: allowed: an object with {', '.join(sorted(names))}")
    return raw


def _fingerprint(ids: RowIds) -> dict[str, Any]:
    """Models with the same fingerprint read rows in the same way."""
    return vars(ids) | {"stops": sorted(ids.stops)}
