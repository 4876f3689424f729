"""Errors as part of the product: what was expected, what was found, for which sample, what to do."""

from __future__ import annotations

from enum import StrEnum

LONGEST_VALUE = 600
LONGEST_LINE = 3000
"""Characters of an expected or found value, and of an error's line; some come from outside and have no end."""


class Kind(StrEnum):
    """What the worker does about a failure."""

    RETRY = "retry"
    """Try the sample again; it may well work the next time."""
    SKIP = "skip"
    """The sample can never work; end it as skipped and go on."""
    ENGINE_DOWN = "engine-down"
    """The engine does not answer; give the lease back, wait for it, resume."""
    STOP = "stop"
    """Going on would be wrong or pointless; stop with a message for a person."""


class HsqueueError(Exception):
    """Base of every named error.

    ``str(error)`` is one line: the problem, then what was expected and found where both are known, then
    the sample, then what to do.
    """

    kind: Kind = Kind.STOP

    def __init__(
        self,
        problem: str,
        *,
        expected: object = None,
        found: object = None,
        sample: object = None,
        do: str | None = None,
    ) -> None:
        self.problem, self.expected, self.found, self.sample, self.do = problem, expected, found, sample, do
        parts = [problem]
        known = [
            f"{word} {str(value)[:LONGEST_VALUE]}"
            for word, value in (("expected", expected), ("found", found))
            if value is not None
        ]
        if known:
            parts.append(", ".join(known))
        if sample is not None:
            parts.append(f"sample {sample}")
        line = "; ".join(parts)
        super().__init__(_one_line(f"{line}. {do}" if do else line))

    @property
    def name(self) -> str:
        """The class name, used as the failure's kind in the ledger and in metrics."""
        return type(self).__name__


def _one_line(text: str) -> str:
    """Foreign text within an error must start no line of its own in a log, and colour no terminal."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split())[:LONGEST_LINE])


# --- samples that may work when tried again -------------------------------------------------------------


class RetryError(HsqueueError):
    kind = Kind.RETRY


class EngineRefused(RetryError):
    """The engine answered, but not with a result (5xx, a duplicate rid, a malformed answer)."""


class RequestTimeout(RetryError):
    """The engine did not answer a request in time, though it is alive."""


class RequestAborted(RetryError):
    """The engine ended the request before its prefill was complete."""


class ResponseMismatch(RetryError):
    """The response is about another request, or about another number of tokens."""


class CachedPrefix(RetryError):
    """The engine took part of the prompt from its prefix cache, so the dump cannot hold every row."""


class DumpMissing(RetryError):
    """No dump of the request appeared in time."""


class DumpMalformed(RetryError):
    """A dump is not what the contract says: torn, of another version, of the wrong shape."""


class DumpMismatch(RetryError):
    """A dump is well formed but holds the states of something else."""


class DumpAmbiguous(RetryError):
    """More than one dump could belong to the request; none is taken."""


class StatesNotFinite(RetryError):
    """A dump holds NaN or infinite values."""


# --- samples that can never work ------------------------------------------------------------------------


class SkipError(HsqueueError):
    kind = Kind.SKIP


class SampleEmpty(SkipError):
    """A prompt without a token."""


class SampleTooLong(SkipError):
    """More tokens than the engine accepts."""


class TokenOutOfVocabulary(SkipError):
    """A token id that the model has no embedding for; some servers die on it."""


class SampleRefused(SkipError):
    """The engine answered 400: this request will never be accepted."""


# --- the engine is away ---------------------------------------------------------------------------------


class EngineDown(HsqueueError):
    """The engine does not accept connections, or dropped one.

    asked: False where it was known to be down before the sample was sent, which therefore has not done it.
    """

    kind = Kind.ENGINE_DOWN
    asked = True


# --- a person has to act --------------------------------------------------------------------------------


class StopError(HsqueueError):
    kind = Kind.STOP


class UsageError(StopError):
    """The command line or a setting is wrong; exit status 2."""


class FingerprintMismatch(StopError):
    """The run was made for something else than what is at hand."""


class EngineUnfit(StopError):
    """The engine cannot serve this run: capture is off, or model, layers, norm or dtype differ."""


class DumpDirectoryNotShared(StopError):
    """The engine does not write its dumps where the worker reads."""


class WorkerAlreadyPinned(StopError):
    """Another worker reads this dump directory."""


class VolumeUnusable(StopError):
    """The shared volume is missing, read-only, full, or lacks an operation that publishing needs."""


class RedisUnreachable(StopError):
    """Redis does not answer, refuses the password, or is configured so that it would lose data."""


class LedgerDamaged(StopError):
    """Redis holds something about a run that hsqueue did not write."""


class RunNotFound(StopError):
    """The directory holds no run."""


class RunDamaged(StopError):
    """A run's own files do not agree with each other."""


class NothingToDo(StopError):
    """The input holds no usable sample."""


class SamplesFailed(StopError):
    """A shard has ended with failed samples; raised so that Flower lists its task as failed, with the reason."""


class LeaseLost(StopError):
    """Another worker holds the shard now; nothing more may be published for it."""


class WorkerStopping(StopError):
    """The worker was asked to end; its shards go to others."""


class DependencyMissing(StopError):
    """An optional package is needed for this and is not installed."""
