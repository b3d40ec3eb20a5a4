import dataclasses
import re
import warnings

import pytest

from experiments.cli import _sentences
from heliograph.systems import build_system
from heliograph.systems.sanity_checks import light_limits, worst_limits
from optical.devices.limits import Light, Size, limits_of
from simulator.errors import LimitWarning

LIGHT = Light(
    lines=12,
    line_w=1e-3,
    coupled_w=0.6e-3,
    feed="si_waveguide",
    absorbed_db=0.0,
    ring_w=0.6e-3,
    detector_a=1e-4,
)
SIZE = Size(
    cluster_m2=1e-5,
    field_m2=858e-6,
    words_bytes_per_s=1e12,
    buffer_bytes_per_s=2e12,
)
BRIGHT = ("feed=si_waveguide", "laser_power_w=180 mW")


def test_dim_light_on_a_small_die_passes_no_limit():
    assert limits_of(LIGHT, SIZE) == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"absorbed_db": 3.0}, "guides 7 mW, and 3.0 dB of the light are lost to two-photon"),
        ({"ring_w": 2e-3}, "2.0 mW to a ring, and silicon rings turn bistable from some 1 mW"),
        ({"line_w": 0.5}, "6.00 W of one source in 12 lines of 500.0 mW, and a packaged comb"),
        ({"line_w": 1.0, "lines": 1}, "1.00 W of one source, and a packaged laser has had 0.5 W"),
        ({"detector_a": 0.02}, "20.00 mA at a detector"),
        ({"cluster_m2": 9e-4}, "covers 900 mm2, and a scanner exposes 858 mm2"),
        ({"words_bytes_per_s": 4e12}, "fetch 4.0 TB/s, and the ports of the buffer give 2.0 TB/s"),
    ],
)
def test_each_limit_is_told_with_its_number(changes, said):
    light, size = (
        dataclasses.replace(one, **{name: value for name, value in changes.items() if hasattr(one, name)})
        for one in (LIGHT, SIZE)
    )
    (found,) = limits_of(light, size)
    assert re.search(said, str(found))
    assert found.excess > 1.0


def test_two_watts_of_light_do_not_pass_without_a_word():
    with pytest.warns(LimitWarning, match="two-photon"):
        bright = build_system("photonic_packet:crossbar", accelerators=8, basis="count", assignments=BRIGHT)
    said = " ".join(str(one) for one in light_limits(bright.photonic))
    assert "2.16 W of one source" in said
    with warnings.catch_warnings():
        warnings.simplefilter("error", LimitWarning)
        build_system(
            "photonic_packet:crossbar", accelerators=8, basis="count", assignments=["laser_power_w=1 mW"]
        )


def test_of_several_systems_each_limit_is_said_once_with_the_worst_number():
    with pytest.warns(LimitWarning) as caught:
        units = [
            build_system(
                "photonic_packet:crossbar",
                accelerators=8,
                basis="count",
                assignments=["feed=si_waveguide", f"laser_power_w={power}"],
            ).photonic
            for power in ("170 mW", "180 mW")
        ]
    assert [one.limit for one in worst_limits(units)] == [one.limit for one in light_limits(units[1])]
    told = [one for one in _sentences([one.message for one in caught]) if "of one source" in one]
    assert len(told) == 1
    assert "2.16 W" in told[0]
    assert told[0].endswith("(the worst of several)")
