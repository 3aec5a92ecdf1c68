"""What Ray workers of the tests are made of; imported there by name."""

import time

from limen.engines import exact

TABLE = {"q=": {"ab": 0.5, "a": 0.2, "b": 0.2, "": 0.1}, "r=": {"b": 0.6, "aaa": 0.4}}


class Slow(exact.ExactEngine):
    """Takes its time for responses of at most four tokens, so that a worker can be killed in the middle of them."""

    def _sample(self, requests, params):
        for sample in super()._sample(requests, params):
            time.sleep(0.005 * (params.max_tokens == 4))
            yield sample


def make_exact():
    return Slow(exact.ResponsesPolicy(TABLE), logprobs=True)


def make_broken():
    from limen.errors import ModelError

    raise ModelError("this model cannot be loaded")
