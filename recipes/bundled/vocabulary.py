"""The tokenizer of the small model: bytes, a few words that every prompt repeats, special tokens.

It has the published layout, so the package reads it like any other. Merges are learned from the
system turns only: those become short, and words of users stay single letters, so that the model can
spell and repeat unseen words. Knows no weights. Invariant: the same text gives the same ids
everywhere; nothing is random.
"""

import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, processors
from tokenizers import pre_tokenizers as pre
from tokenizers.trainers import BpeTrainer

from mosslive.checkpoint.vocabulary import SPEECH_START, TEXT_PLACEHOLDER
from mosslive.rows import (
    DRIVER_SYSTEM,
    END_OF_TEXT,
    READ_ALOUD_SYSTEM,
    WRITE_DOWN_SYSTEM,
    TextTokenizer,
)
from mosslive.rows.prompt import PROCESSOR_SYSTEM
from mosslive.rows.tokenizer import TURN_END, TURN_START

# Tasks that no published system turn asks for.
TASK_SYSTEM = {
    "transcribe": WRITE_DOWN_SYSTEM,
    "read": READ_ALOUD_SYSTEM,
    "echo": "Repeat what the user says.",
}
_TOKENS = 400
_ADDED = (END_OF_TEXT, TURN_START, TURN_END, SPEECH_START, TEXT_PLACEHOLDER)
# Words longer than this with their space stay in pieces; the system turns' words are shorter.
_WORD = r" ?[A-Za-z]+|[^A-Za-z]"


def tokenizer_json() -> str:
    tokenizer = Tokenizer(models.BPE())
    split = pre.Split(Regex(_WORD), behavior="isolated")
    spelled = pre.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.pre_tokenizer = pre.Sequence([split, spelled])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=_TOKENS, initial_alphabet=pre.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(_prompt_words(), trainer)
    tokenizer.add_tokens([AddedToken(t, special=True, normalized=False) for t in _ADDED])
    return json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, indent=1) + "\n"


def _prompt_words() -> list[str]:
    """Returns long words only: merging "a" or "the" would also merge text of users."""
    texts = [*DRIVER_SYSTEM.values(), *PROCESSOR_SYSTEM.values(), *TASK_SYSTEM.values()]
    words = [word for text in texts for word in text.replace(".", "").split() if len(word) > 4]
    return [f" {word}" for word in words] + ["system", "assistant", "user"]


def load_tokenizer() -> TextTokenizer:
    return TextTokenizer(tokenizer_json())


def ids(tokenizer: TextTokenizer) -> dict[str, int]:
    """Returns the ids that a config needs."""
    names = {
        "modality_pad_token_id": TEXT_PLACEHOLDER,
        "sosp_token_id": SPEECH_START,
        "eos_token_id": TURN_END,
        "pad_token_id": END_OF_TEXT,
    }
    found = {}
    for field, token in names.items():
        index = tokenizer.id_of(token)
        assert index is not None, token
        found[field] = index
    return found
