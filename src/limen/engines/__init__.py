"""Engines draw responses and score them. `protocol` says what every engine promises."""
