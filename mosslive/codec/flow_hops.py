"""When a live reply can be rendered, and how far: the hop rule, counted in codes.

Arithmetic only, no tensors. Invariant: prompt and rendered codes together end on a chunk border
after every hop, because the frames of a chunk that is still filling would change later.
"""

from dataclasses import dataclass

from mosslive.codec.conformer import LOOK_AHEAD


def next_hop(available: int, cursor: int, prompt: int, chunk: int) -> int | None:
    """How many codes to render now, or None: wait for more, or for the end of the reply.

    Of `available` reply codes `cursor` are rendered already; the voice prompt has `prompt` codes.
    The first hop is longer by what aligns the prompt. Three codes beyond the hop must be there.
    """
    needed = needed_codes(cursor, prompt, chunk)
    return needed - LOOK_AHEAD if available - cursor >= needed else None


def needed_codes(cursor: int, prompt: int, chunk: int) -> int:
    """How many codes beyond those rendered the next hop takes, look-ahead included."""
    return chunk + (-prompt % chunk if cursor == 0 else 0) + LOOK_AHEAD


def leads_in(available: int, cursor: int, prompt: int, chunk: int) -> bool:
    """Whether the end of the prompt can be computed before the first hop: it sees the first three
    codes of the reply. Only for a prompt of whole chunks; otherwise its end is part of the hop."""
    return cursor == 0 and prompt > 0 and prompt % chunk == 0 and available >= LOOK_AHEAD


def settled_prompt(prompt: int, chunk: int) -> int:
    """How many prompt codes belong to chunks that no reply can change: the part of a voice that is
    computed once. The chunks after it see reply codes, by look-ahead or in their own chunk."""
    return chunk * max(0, (prompt - LOOK_AHEAD) // chunk)


@dataclass
class HopCounter:
    """Counts the codes of one reply: how many came, how many are rendered, what can be rendered.

    The batch that renders a reply has one. A caller on another thread keeps one of its own, which
    predicts what the batch will do with the codes it is given.
    """

    prompt: int  # codes
    chunk: int
    received: int = 0
    rendered: int = 0

    def next_hop(self, more: int = 0) -> int | None:
        """Codes to render next, if `more` codes came now; None: not enough."""
        return next_hop(self.received + more, self.rendered, self.prompt, self.chunk)

    def leads_in(self, more: int = 0) -> bool:
        """Whether the end of the prompt can be computed, if `more` codes came now."""
        return leads_in(self.received + more, self.rendered, self.prompt, self.chunk)

    @property
    def needed(self) -> int:
        """Codes beyond those rendered that the next hop takes, look-ahead included."""
        return needed_codes(self.rendered, self.prompt, self.chunk)

    def render_all(self) -> None:
        """Counts every hop that can be rendered now as rendered."""
        while hop := self.next_hop():
            self.rendered += hop
