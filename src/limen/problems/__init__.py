"""Where questions come from, and the one place where a prompt is rendered (`limen.problems.prompt`)."""

from limen.problems.load import load_problems

__all__ = ["load_problems"]
