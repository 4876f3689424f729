"""What a tokenised record must keep to before it becomes a sample."""

from __future__ import annotations

from dataclasses import dataclass

from hsqueue.planning.records import Tokens
from hsqueue.planning.rejects import Reason, Reject


@dataclass(frozen=True, slots=True)
class Limits:
    """max_length: tokens. min_loss_tokens: supervised tokens. vocab_size: token ids run from 0 to one less."""

    max_length: int
    min_loss_tokens: int
    vocab_size: int

    def breach(self, tokens: Tokens) -> Reject | None:
        """The first limit that `tokens` does not keep to, None where it keeps to all."""
        ids = tokens.input_ids
        if not ids:
            return Reject(Reason.EMPTY, "no token is left of it")
        if len(ids) > self.max_length:
            return Reject(Reason.OVER_LENGTH, f"{len(ids)} tokens, at most {self.max_length}")
        lowest, highest = min(ids), max(ids)
        if lowest < 0 or highest >= self.vocab_size:
            found = lowest if lowest < 0 else highest
            return Reject(Reason.OUTSIDE_VOCABULARY, f"token id {found}, the model has 0 to {self.vocab_size - 1}")
        supervised = tokens.loss_mask.count(1)
        if supervised < self.min_loss_tokens:
            return Reject(Reason.TOO_FEW_SUPERVISED, f"{supervised} tokens, at least {self.min_loss_tokens}")
        return None
