"""What a result says of where it was made."""

from limen import provenance as module
from limen.provenance import machine_of, provenance

CPUINFO = """processor\t: 0
cpu family\t: 25
model\t\t: 1
model name\t: AMD EPYC

processor\t: 1
cpu family\t: 6
model\t\t: 85
model name\t: another
"""


def test_two_processors_of_one_name_are_told_apart(tmp_path, monkeypatch):
    """Rounding, and with it a training's course, depends on the processor; its name may be no more than its maker's."""
    file = tmp_path / "cpuinfo"
    file.write_text(CPUINFO)
    first = module._first_processor(file)
    monkeypatch.setattr(module, "_first_processor", lambda: first)
    hardware = provenance()["hardware"]
    assert (hardware["processor"], hardware["processor_id"]) == ("AMD EPYC", "family 25, model 1")
    assert machine_of({"hardware": {**hardware, "gpus": []}}) == "AMD EPYC"


def test_where_nothing_is_known_of_the_processor(tmp_path, monkeypatch):
    assert module._first_processor(tmp_path / "none") == {}
    monkeypatch.setattr(module, "_first_processor", dict)
    assert "processor_id" not in provenance()["hardware"]
    assert machine_of({}) == ""
