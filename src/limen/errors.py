"""Errors that are the user's to mend. Each message says what came, what was expected and what to do.

Anything else that is raised is ours: an `AssertionError` or a plain exception is a bug in limen.
"""


class LimenError(ValueError):
    """What the command line prints as one clear line, without a traceback."""


class ConfigError(LimenError):
    """A setting is unknown, out of range, or contradicts another."""


class DataError(LimenError):
    """A problem file, count file or log does not hold what it should."""


class ModelError(LimenError):
    """A model or tokenizer cannot be loaded, or cannot do what is asked of it."""


class StoreError(LimenError):
    """A run folder cannot be read or written: corrupt shard, full disk, other settings."""


class MissingExtra(LimenError):
    """An optional dependency is not installed; the message names the extra that brings it."""

    def __init__(self, package: str, extra: str, why: str) -> None:
        super().__init__(f"{why} needs the package '{package}', which is not installed: pip install 'limen[{extra}]'")
