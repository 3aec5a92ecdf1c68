"""limen: does reinforcement learning with verifiable rewards shrink what a model can solve, and how not to.

Importing this package imports neither torch nor transformers; the parts that need them import late.
"""

__version__ = "0.1.0"
