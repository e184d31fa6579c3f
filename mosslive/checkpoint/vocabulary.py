"""Makes a working `tokenizer.json` in Qwen3's format: byte-level BPE with the Qwen special tokens.

The merges come from a tiktoken ranks file (for example the true Qwen vocabulary), or are learned
from a few sentences. Does not know weights.
"""

import base64
import itertools
import json
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, processors
from tokenizers import pre_tokenizers as pre
from tokenizers.trainers import BpeTrainer

from mosslive.errors import MossliveError
from mosslive.rows.tokenizer import CHARACTER_OF_BYTE, END_OF_TEXT, TURN_END, TURN_START

SPEECH_START = "<|object_ref_start|>"
TEXT_PLACEHOLDER = "<think>"  # Qwen3's name of the id MOSS-Speech uses as modality pad

# Qwen3's added tokens in id order; (content, special). MOSS-Speech keeps their ids.
_ADDED = (
    *((t, True) for t in (END_OF_TEXT, TURN_START, TURN_END, SPEECH_START, "<|object_ref_end|>")),
    *((f"<|{t}|>", True) for t in ("box_start", "box_end", "quad_start", "quad_end")),
    *((f"<|vision_{t}|>", True) for t in ("start", "end", "pad")),
    *((f"<|{t}|>", True) for t in ("image_pad", "video_pad")),
    *((t, False) for t in ("<tool_call>", "</tool_call>")),
    *((f"<|fim_{t}|>", False) for t in ("prefix", "middle", "suffix", "pad")),
    *((f"<|{t}|>", False) for t in ("repo_name", "file_sep")),
    *((t, False) for t in ("<tool_response>", "</tool_response>", TEXT_PLACEHOLDER, "</think>")),
)

# Qwen's pre-tokeniser: contractions, words with one leading mark, single digits, punctuation runs.
_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_SENTENCES = (
    "You are a helpful voice assistant. Answer the user's questions with spoken responses.",
    "You are a helpful assistant. Answer the user's questions with text.",
    "Hello! How are you today? I am fine, thank you. What can I do for you?",
    "The weather is nice this morning, and the train leaves at ten o'clock.",
    "Tell me about the city, the river and the old bridge near the market.",
    "系统 用户 助手 你好，今天天气怎么样？请用中文回答我的问题。",
)
_LEARNED_TOKENS = 400


class VocabularyError(MossliveError, ValueError):
    """A file is not a valid tiktoken ranks file."""


@dataclass(frozen=True)
class Vocabulary:
    """`tokenizer.json` and the ids that a config needs."""

    json: str
    size: int  # ids in use, 0 .. size-1
    end_of_text: int
    turn_end: int
    speech_start: int
    text_placeholder: int


def learned_vocabulary() -> Vocabulary:
    """256 bytes and a few merges: small, deterministic, and any text round-trips."""
    tokenizer = _frame(models.BPE())
    trainer = BpeTrainer(
        vocab_size=_LEARNED_TOKENS,
        initial_alphabet=pre.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_SENTENCES, trainer)
    return _finish(tokenizer)


def ranked_vocabulary(path: Path) -> Vocabulary:
    """From a tiktoken ranks file: lines of base64 token and rank. Takes seconds for Qwen's."""
    try:
        lines = path.read_bytes().split(b"\n")
        ranks = {
            base64.b64decode(token, validate=True): int(rank)
            for token, rank in (line.split() for line in lines if line)
        }
    except (OSError, ValueError) as error:
        raise VocabularyError(f"{path}: not a tiktoken ranks file: {error}") from None
    if sorted(ranks.values()) != list(range(len(ranks))) or len(ranks) < 256:
        raise VocabularyError(f"{path}: ranks must be 0, 1, 2, … and include all 256 bytes")
    merges = []
    for token in sorted(ranks, key=ranks.__getitem__):
        if len(token) > 1:
            left, right = _last_pair(token, ranks)
            merges.append((_spelled(left), _spelled(right)))
    vocabulary = {_spelled(token): rank for token, rank in ranks.items()}
    return _finish(_frame(models.BPE(vocabulary, merges)))


def _last_pair(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    """The two parts that merge into `token`: BPE on its bytes with lower ranks only."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        candidates = [
            (ranks[left + right], i)
            for i, (left, right) in enumerate(itertools.pairwise(parts))
            if left + right in ranks
        ]
        if not candidates:
            raise VocabularyError(f"no sequence of merges gives the token {token!r}")
        _, i = min(candidates)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts[0], parts[1]


def _spelled(token: bytes) -> str:
    return "".join(CHARACTER_OF_BYTE[byte] for byte in token)


def _frame(model: models.Model) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre.Sequence(
        [
            pre.Split(Regex(_PATTERN), behavior="isolated"),
            pre.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        ]
    )
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _finish(tokenizer: Tokenizer) -> Vocabulary:
    tokenizer.add_tokens([AddedToken(t, special=s, normalized=False) for t, s in _ADDED])
    text = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, indent=2)
    ids = tokenizer.get_vocab(with_added_tokens=True)
    return Vocabulary(
        json=text + "\n",
        size=len(ids),
        end_of_text=ids[END_OF_TEXT],
        turn_end=ids[TURN_END],
        speech_start=ids[SPEECH_START],
        text_placeholder=ids[TEXT_PLACEHOLDER],
    )
