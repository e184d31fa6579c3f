"""Which published models belong together: the data behind `mosslive serve fnlp/MOSS-Speech`.

Repo ids may move, so they are written here and nowhere else in the package. Knows names, not how
they are downloaded.
"""

from dataclasses import dataclass

MOSS_SPEECH = "fnlp/MOSS-Speech"


@dataclass(frozen=True)
class Companions:
    """What a language model is used with if the user names nothing else."""

    codec: str  # repo id


# The publishers' demo pairs these two. Neither repo has a voice; `cli/models.py` has the default.
COMPANIONS = {MOSS_SPEECH: Companions(codec="fnlp/MOSS-Speech-Codec")}
