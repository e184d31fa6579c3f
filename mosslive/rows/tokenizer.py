"""The model's text tokenizer: `tokenizer.json` through the `tokenizers` library.

Adds two things to the library: user text never becomes control tokens, and every id has its bytes,
so that a stream of ids can be decoded in whole characters.
"""

import json
from pathlib import Path

from tokenizers import Tokenizer

from mosslive.config import ModelConfig
from mosslive.errors import MossliveError

END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
_SHORT = 1000  # characters; takes 1 to 4 ms at most


class TokenizerError(MossliveError, ValueError):
    """tokenizer.json is missing, unreadable, or does not belong to the config."""


class TextTokenizer:
    """Text ↔ ids. Encoding adds no special tokens."""

    def __init__(self, text: str, origin: str = "tokenizer.json") -> None:
        self.json = text
        self._origin = origin
        try:
            self._tokenizer = Tokenizer.from_str(text)
        except Exception as error:  # the library raises bare Exception for any malformed file
            raise TokenizerError(f"{origin}: not a readable tokenizer: {error}") from None
        added = self._tokenizer.get_added_tokens_decoder()
        self._added = {index: token.content for index, token in added.items()}
        self._special = frozenset(index for index, token in added.items() if token.special)
        self._plain: Tokenizer | None = None  # built when a text first contains an added token
        self._bytes: dict[int, bytes] = {}

    @classmethod
    def from_file(cls, path: Path) -> "TextTokenizer":
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise TokenizerError(
                f"{path}: no such file; a model folder needs tokenizer.json"
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise TokenizerError(f"{path}: not readable: {error}") from None
        return cls(text, str(path))

    def check(self, config: ModelConfig) -> None:
        """Raises `TokenizerError` for a tokenizer of another model: `<|im_end|>` must be the
        config's stop id, and every id must be inside the vocabulary."""
        words = self._tokenizer.get_vocab(with_added_tokens=False)
        foreign = next((word for word in words if not BYTE_OF_CHARACTER.keys() >= set(word)), None)
        if foreign is not None:
            raise TokenizerError(
                f"{self._origin}: token {foreign!r} is not byte-level; allowed: byte-level BPE"
            )
        largest = max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        if largest >= config.vocab_size:
            raise TokenizerError(
                f"{self._origin}: the largest id is {largest}; allowed: below vocab_size "
                f"{config.vocab_size}"
            )
        for content in (TURN_START, TURN_END):
            if self.id_of(content) is None:
                raise TokenizerError(f"{self._origin}: {content} is missing; prompts need it")
        if self.id_of(TURN_END) != config.eos_token_id:
            raise TokenizerError(
                f"{self._origin}: {TURN_END} is id {self.id_of(TURN_END)}, but config.json says "
                f"eos_token_id {config.eos_token_id}; the two files belong to different models"
            )

    def id_of(self, token: str) -> int | None:
        found: int | None = self._tokenizer.token_to_id(token)
        return found

    def encode(self, text: str, control: bool = False) -> list[int]:
        """Ids of one segment. With `control=True` added tokens in the text become control tokens,
        as in the published processor. Otherwise they stay ordinary text, so a user cannot forge
        the end of a turn or a speech row."""
        ids = _encode(self._tokenizer, text)
        if control or self._added.keys().isdisjoint(ids):
            return ids
        if self._plain is None:
            raw = json.loads(self.json)
            raw["added_tokens"] = []
            self._plain = Tokenizer.from_str(json.dumps(raw))
        return _encode(self._plain, text)

    def decode(self, ids: list[int]) -> str:
        """Text of `ids` without special tokens. Skips unused ids (vocabulary padding)."""
        text: str = self._tokenizer.decode(
            [index for index in ids if self.token_bytes(index)], skip_special_tokens=True
        )
        return text

    def token_bytes(self, index: int) -> bytes:
        """UTF-8 bytes of an id; empty for special tokens and unused ids."""
        known = self._bytes.get(index)
        if known is None:
            known = self._bytes[index] = self._find_bytes(index)
        return known

    def _find_bytes(self, index: int) -> bytes:
        if index in self._special:
            return b""
        if index in self._added:
            return self._added[index].encode()
        token: str | None = self._tokenizer.id_to_token(index)
        return b"" if token is None else bytes(BYTE_OF_CHARACTER[c] for c in token)


def _encode(tokenizer: Tokenizer, text: str) -> list[int]:
    # The library lets other threads run during `encode_batch`, and not during `encode`. Long texts
    # take milliseconds; short ones are not worth its cost.
    if len(text) > _SHORT:
        batch = tokenizer.encode_batch([text], add_special_tokens=False)
        ids: list[int] = batch[0].ids
    else:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def _byte_of_character() -> dict[str, int]:
    # Byte-level BPE writes each byte as one printable character: printable Latin-1 stands for
    # itself, the other 68 bytes are numbered from U+0100 on (the GPT-2 convention).
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in set(printable)]
    return table | {chr(0x100 + n): byte for n, byte in enumerate(others)}


BYTE_OF_CHARACTER = _byte_of_character()
CHARACTER_OF_BYTE = {byte: character for character, byte in BYTE_OF_CHARACTER.items()}
