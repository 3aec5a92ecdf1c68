"""Settings: an unknown key, a value out of range, and what may change on a second start."""

import pytest

from limen.config import EXTENT, SPEED, SampleSettings, differences
from limen.errors import ConfigError

GOOD = {"model": "tiny", "problems": "arithmetic:all"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temprature": 0.6}, "unknown setting 'temprature': did you mean 'temperature'"),
        ({"temperature": -1}, "'temperature'.*greater than or equal to 0"),
        ({"top_p": 0}, "'top_p'"),
        ({"n": 0}, "'n'"),
        ({"n": "many"}, "'n'.*valid integer"),
        ({"stop": [""]}, "empty stop string"),
        ({"temperature": 0, "n": 4}, "draws the same response"),
        ({"dtype": "int8"}, "'dtype'"),
    ],
)
def test_bad_settings_are_one_line(change, message):
    with pytest.raises(ConfigError, match=message) as error:
        SampleSettings.make(**GOOD, **change)
    assert "\n" not in str(error.value)


def test_missing_settings_are_named():
    with pytest.raises(ConfigError, match="'problems'"):
        SampleSettings.make(model="tiny")


def test_only_extent_and_speed_may_differ():
    a = SampleSettings.make(**GOOD).model_dump(mode="json")
    b = SampleSettings.make(**GOOD, n=9, batch_size=3, limit=4).model_dump(mode="json")
    assert differences(a, b, EXTENT | SPEED) == []
    c = SampleSettings.make(**GOOD, seed=1, stop=("x",)).model_dump(mode="json")
    assert differences(a, c, EXTENT | SPEED) == ["stop: [] -> ['x']", "seed: 0 -> 1"]
