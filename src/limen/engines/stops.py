"""Stop strings: found in the decoded text as it grows, however the tokenizer cut it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class StopStrings:
    """Finds the first of several strings in a growing response.

    Decoding every row at every token would cost more than a small model. A string can only have been completed by
    a token that holds one of the strings' last characters; `may_complete` marks those tokens, and only their rows
    are decoded, and only their last few tokens.
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str], vocabulary: int) -> None:
        self.tokenizer = tokenizer
        self.stop = tuple(stop)
        self.window = max((len(s.encode()) for s in self.stop), default=0) + 4
        self.may_complete = self._mark(vocabulary) if self.stop else np.zeros(vocabulary, dtype=bool)

    def _mark(self, vocabulary: int) -> NDArray[np.bool_]:
        last = {s[-1] for s in self.stop}
        marks = np.ones(vocabulary, dtype=bool)
        if any(c.isspace() and c != "\n" for c in last):
            return marks  # decoders strip blanks of a lone token, so a lone token says nothing
        known = min(vocabulary, len(self.tokenizer))
        texts = self.tokenizer.batch_decode([[i] for i in range(known)], clean_up_tokenization_spaces=False)
        for i, text in enumerate(texts):
            marks[i] = "\ufffd" in text or any(c in text for c in last)
        return marks

    def found(self, token_ids: Sequence[int]) -> bool:
        """Whether the response now holds a stop string; looks at the end first."""
        tail = self.decode(token_ids[-self.window :])
        if not any(s in tail for s in self.stop):
            return False
        return len(token_ids) <= self.window or self.cut(self.decode(token_ids)) is not None

    def cut(self, text: str) -> str | None:
        """The text before the earliest stop string, or None where there is none."""
        ends = [at for s in self.stop if (at := text.find(s)) >= 0]
        return text[: min(ends)] if ends else None

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of a response: special tokens left out, blanks as they are."""
        text: str = self.tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def decode_many(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Texts of many responses; at once where the tokenizer has a compiled core, which is several times faster."""
        core = getattr(self.tokenizer, "backend_tokenizer", None)
        if len(rows) < 8 or core is None or not hasattr(core, "decode_batch"):
            return [self.decode(row) for row in rows]
        texts: list[str] = core.decode_batch([list(row) for row in rows], skip_special_tokens=True)
        # A tokenizer class may do more than its core; then every text is its own.
        return texts if texts[0] == self.decode(rows[0]) else [self.decode(row) for row in rows]
