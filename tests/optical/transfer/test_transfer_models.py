import inspect
import math

import numpy as np
import pytest

from optical.transfer import models
from optical.transfer.elements import coupler_matrix, mzi_matrix, silicon_strip, transfer_table
from optical.transfer.mesh import MeshErrors, MeshLayout, decompose, draw_errors
from optical.transfer.models import (
    ports_of,
    scattering_matrix,
)
from simulator.errors import ParameterError
from simulator.units import SPEED_OF_LIGHT_M_PER_S
from tests.builders import haar, largest_gain

WL = np.linspace(1.53, 1.57, 41)
MODE = silicon_strip()
PARTS = {
    "waveguide": models.waveguide,
    "phase_shifter": models.phase_shifter,
    "coupler": models.coupler,
    "mzi": models.mzi,
    "ring_all_pass": models.ring_all_pass,
    "ring_add_drop": models.ring_add_drop,
    "crossing": models.crossing,
    "y_splitter": models.y_splitter,
}
SETTINGS = {
    "phase_shifter": {"phase_rad": 0.7},
    "coupler": {"coupling": 0.3, "error_rad": 0.02},
    "mzi": {"theta_rad": 1.1, "phi_rad": 0.4, "first_rad": 0.03, "second_rad": -0.02},
    "ring_add_drop": {"drop_coupling": 0.05, "rise_k": 12.0},
}
LOSSLESS = {
    "waveguide": "loss_db_per_m",
    "phase_shifter": "loss_db",
    "coupler": "loss_db",
    "mzi": "loss_db",
    "ring_all_pass": "loss_db_per_m",
    "ring_add_drop": "loss_db_per_m",
}


def solve_netlist(instances, connections, ports):
    """Return the scattering dictionary of a circuit by one dense linear solve per wavelength."""
    names = [(name, port) for name, part in instances.items() for port in ports_of(part)]
    index = {f"{name},{port}": i for i, (name, port) in enumerate(names)}
    shape = np.broadcast_shapes(*(np.shape(v) for part in instances.values() for v in part.values()))
    s = np.zeros((*shape, len(names), len(names)), dtype=complex)
    for name, part in instances.items():
        for (a, b), value in part.items():
            s[..., index[f"{name},{b}"], index[f"{name},{a}"]] = value
    joined = np.zeros((len(names), len(names)))
    for a, b in connections.items():
        joined[index[a], index[b]] = joined[index[b], index[a]] = 1.0
    # out = s in, in = joined out + source
    full = np.linalg.solve(np.eye(len(names)) - s @ joined, s)
    return {
        (a, b): full[..., index[at_b], index[at_a]] for a, at_a in ports.items() for b, at_b in ports.items()
    }


def same(found, expected):
    ports = ports_of(expected)
    return np.abs(scattering_matrix(found, ports) - scattering_matrix(expected, ports)).max()


@pytest.mark.parametrize("name", PARTS)
def test_every_part_is_passive_reciprocal_and_shaped_like_its_wavelengths(name):
    found = PARTS[name](wl=WL, **SETTINGS.get(name, {}))
    matrix = scattering_matrix(found)
    assert all(np.shape(value) == WL.shape for value in found.values())
    assert largest_gain(matrix) <= 1.0 + 1e-12
    assert np.abs(matrix - np.swapaxes(matrix, -1, -2)).max() < 1e-15
    one = scattering_matrix(PARTS[name](wl=float(WL[7]), **SETTINGS.get(name, {})))
    assert one == pytest.approx(matrix[7], abs=1e-12)


@pytest.mark.parametrize("name", LOSSLESS)
def test_a_part_without_loss_is_unitary_and_more_loss_leaves_less(name):
    settings = SETTINGS.get(name, {})
    matrix = scattering_matrix(PARTS[name](wl=WL, **{LOSSLESS[name]: 0.0}, **settings))
    product = np.swapaxes(matrix.conj(), -1, -2) @ matrix
    assert np.abs(product - np.eye(matrix.shape[-1])).max() < 1e-12
    powers = [
        np.linalg.norm(scattering_matrix(PARTS[name](wl=WL, **{LOSSLESS[name]: loss}, **settings)))
        for loss in (0.0, 0.5, 1.0, 5.0)
    ]
    assert powers == sorted(powers, reverse=True)
    assert powers[0] > powers[-1]


@pytest.mark.parametrize("name", PARTS)
def test_no_setting_of_a_part_is_a_dead_knob(name):
    base = SETTINGS.get(name, {})
    found = scattering_matrix(PARTS[name](wl=1.5507, **base))
    for knob, parameter in inspect.signature(PARTS[name]).parameters.items():
        if knob == "wl":
            continue
        value = base.get(knob, parameter.default)
        moved = scattering_matrix(PARTS[name](wl=1.5507, **(base | {knob: 1.02 * value + 0.01})))
        assert np.abs(moved - found).max() > 1e-9, knob


def test_mzi_is_its_couplers_and_shifters_joined():
    # an independent road: the parts joined port by port, and one dense solve
    first, second, theta, phi = 0.03, -0.05, 1.3, 2.1
    parts = {
        "entry": models.phase_shifter(wl=WL, phase_rad=phi, loss_db=0.0),
        "split": models.coupler(wl=WL, error_rad=first, loss_db=0.0),
        "arm": models.phase_shifter(wl=WL, phase_rad=theta, loss_db=0.0),
        "join": models.coupler(wl=WL, error_rad=second, loss_db=0.0),
    }
    joints = {"entry,out0": "split,in0", "split,out0": "arm,in0"}
    joints |= {"arm,out0": "join,in0", "split,out1": "join,in1"}
    ports = {"in0": "entry,in0", "in1": "split,in1", "out0": "join,out0", "out1": "join,out1"}
    whole = models.mzi(wl=WL, theta_rad=theta, phi_rad=phi, first_rad=first, second_rad=second, loss_db=0.0)
    assert same(whole, solve_netlist(parts, joints, ports)) < 1e-13


def test_add_drop_ring_is_two_couplers_and_two_arcs_joined():
    half = math.pi * 10.0
    parts = {
        "bus": models.coupler(wl=WL, coupling=0.04, loss_db=0.0),
        "drop": models.coupler(wl=WL, coupling=0.07, loss_db=0.0),
        "up": models.waveguide(wl=WL, length=half, rise_k=5.0),
        "down": models.waveguide(wl=WL, length=half, rise_k=5.0),
    }
    joints = {"bus,out1": "up,in0", "up,out0": "drop,in1", "drop,out1": "down,in0", "down,out0": "bus,in1"}
    ports = {"in0": "bus,in0", "out0": "bus,out0", "in1": "drop,in0", "out1": "drop,out0"}
    whole = models.ring_add_drop(wl=WL, radius=10.0, coupling=0.04, drop_coupling=0.07, rise_k=5.0)
    assert same(whole, solve_netlist(parts, joints, ports)) < 1e-12


def test_all_pass_ring_is_a_coupler_and_a_loop():
    parts = {
        "bus": models.coupler(wl=WL, coupling=0.04, loss_db=0.0),
        "loop": models.waveguide(wl=WL, length=20.0 * math.pi),
    }
    joints = {"bus,out1": "loop,in0", "loop,out0": "bus,in1"}
    ports = {"in0": "bus,in0", "out0": "bus,out0"}
    whole = models.ring_all_pass(wl=WL, radius=10.0, coupling=0.04)
    assert same(whole, solve_netlist(parts, joints, ports)) < 1e-12


def test_mesh_is_its_interferometers_joined():
    mesh = decompose(haar(4))
    errors = draw_errors(mesh.layout, splitter_rad=0.05, phase_rad=0.02, generator=np.random.default_rng(3))
    wl, loss = WL[:5], 0.4
    parts, joints, ends = {}, {}, [None] * 4
    ports = {}
    for k, upper in enumerate(mesh.layout.upper):
        parts[f"m{k}"] = models.mzi(
            wl=wl,
            theta_rad=mesh.theta_rad[k] + errors.theta_rad[k],
            phi_rad=mesh.phi_rad[k] + errors.phi_rad[k],
            first_rad=errors.splitter_rad[k, 0],
            second_rad=errors.splitter_rad[k, 1],
            loss_db=loss,
        )
        for side in (0, 1):
            if ends[upper + side] is None:
                ports[f"in{upper + side}"] = f"m{k},in{side}"
            else:
                joints[ends[upper + side]] = f"m{k},in{side}"
            ends[upper + side] = f"m{k},out{side}"
    for i in range(4):
        phase = mesh.output_rad[i] + errors.output_rad[i]
        parts[f"p{i}"] = models.phase_shifter(wl=wl, phase_rad=phase, loss_db=0.0)
        joints[ends[i]] = f"p{i},in0"
        ports[f"out{i}"] = f"p{i},out0"
    whole = models.mesh_model(mesh, errors)(wl=wl, loss_db=loss)
    assert same(whole, solve_netlist(parts, joints, ports)) < 1e-12
    assert largest_gain(scattering_matrix(whole)) <= 1.0


def test_one_interferometer_is_a_mesh_of_two():
    mesh = decompose(haar(2))
    settings = {"theta_rad": mesh.theta_rad[0], "phi_rad": mesh.phi_rad[0]}
    ports = ("in0", "in1", "out0", "out1")
    alone = scattering_matrix(models.mzi(wl=WL, **settings), ports)[..., 2:, :2]
    phases = np.exp(1j * mesh.output_rad / models.wavelength_ratio(WL)[:, None])
    found = scattering_matrix(models.mesh_model(mesh)(wl=WL), ports)[..., 2:, :2]
    assert found == pytest.approx(phases[..., None] * alone, abs=1e-14)


def test_critical_coupling_extinguishes_a_ring_on_resonance():
    """Bogaerts et al., Laser Photonics Rev. 6 (2012) 47: the through port vanishes at r = a."""
    length_m = 2.0 * math.pi * 10.0 * models.MICROMETRE_M
    order = round(MODE.effective_index * length_m / MODE.wavelength_m)
    # n(wl) = order wl / L is linear in wl, so a resonance stands where the two lines meet
    slope = (MODE.group_index - MODE.effective_index) / MODE.wavelength_m
    wl = MODE.group_index / (order / length_m + slope) / models.MICROMETRE_M
    lost = 1.0 - 10.0 ** (-200.0 * length_m / 10.0)
    settings = {"wl": wl, "radius": 10.0, "loss_db_per_m": 200.0, "dispersion": 0.0}
    through = models.ring_all_pass(coupling=lost, **settings)["in0", "out0"]
    assert abs(through) < 1e-10
    assert abs(models.ring_all_pass(coupling=3 * lost, **settings)["in0", "out0"]) > 0.4


def test_resonances_lie_a_free_spectral_range_apart_and_move_with_temperature():
    """Bogaerts et al. 2012: free spectral range wl^2 / (n_g L), tuning wl (dn/dT) / n_g per kelvin."""
    wl = np.linspace(1.53, 1.57, 40001)

    def dips(rise_k):
        power = np.abs(models.ring_all_pass(wl=wl, radius=20.0, coupling=0.01, rise_k=rise_k)["in0", "out0"])
        inner = (power[1:-1] < power[:-2]) & (power[1:-1] < power[2:])
        return wl[1:-1][inner]

    cold, warm = dips(0.0), dips(10.0)
    spacing = cold[len(cold) // 2] - cold[len(cold) // 2 - 1]
    middle = cold[len(cold) // 2] - spacing / 2.0
    expected = middle**2 / (MODE.group_index * 2.0 * math.pi * 20.0)
    assert spacing == pytest.approx(expected, rel=0.005)
    near = cold[np.argmin(np.abs(cold - 1.55))]
    shift = np.min(warm[warm > near]) - near
    assert shift == pytest.approx(near * MODE.thermo_optic_per_k * 10.0 / MODE.group_index, rel=0.01)


def test_a_waveguide_delays_by_its_group_index():
    length, step = 1000.0, 1e-6
    wl = np.array([1.55 - step, 1.55 + step])
    phase = np.angle(np.divide(*models.waveguide(wl=wl, length=length)["in0", "out0"]))
    omega = 2.0 * math.pi * SPEED_OF_LIGHT_M_PER_S / (wl * models.MICROMETRE_M)
    delay_s = phase / (omega[0] - omega[1])
    expected = MODE.group_index * length * models.MICROMETRE_M / SPEED_OF_LIGHT_M_PER_S
    assert delay_s == pytest.approx(expected, rel=1e-5)


def test_a_drop_filter_passes_half_of_its_power_half_a_linewidth_away():
    """Lorentzian limit of the drop port: X(d) = 1 / (1 + (2 d / FWHM)^2)."""
    wl = np.linspace(1.545, 1.555, 200001)
    drop = np.abs(models.ring_add_drop(wl=wl, radius=10.0, loss_db_per_m=0.0)["in0", "out1"]) ** 2
    peak = int(np.argmax(drop))
    assert drop[peak] == pytest.approx(1.0, abs=1e-4)
    width = np.ptp(wl[drop > drop[peak] / 2.0])
    offset = round(2.0 * width / (wl[1] - wl[0]))
    assert drop[peak + offset] == pytest.approx(1.0 / 17.0, rel=0.02)


def test_a_coupler_disperses_as_the_crossbar_of_lightening_transformer():
    """12 lines of 0.4 nm: 2 kappa - 1 reaches 0.0089 (its coupler model, HPCA 2024, evaluated)."""
    crossed = np.abs(models.coupler(wl=1.5522, loss_db=0.0)["in0", "out1"]) ** 2
    assert 2.0 * crossed - 1.0 == pytest.approx(0.0089, rel=0.02)


def test_wrong_couplers_leave_light_in_the_cross_state():
    # sin^2(a + b): two couplers wrong by 0.02 rad leave -28 dB
    floor = np.abs(mzi_matrix(0.0, 0.0, 0.02, 0.02)[0, 0]) ** 2
    assert floor == pytest.approx(math.sin(0.04) ** 2, rel=1e-12)
    assert 10.0 * math.log10(floor) == pytest.approx(-28.0, abs=0.1)


def test_a_splitter_divides_evenly_and_does_not_gather_two_random_fields():
    both = scattering_matrix(models.y_splitter(loss_db=0.0), ("in0", "out0", "out1"))
    assert np.abs(both[1:, 0]) ** 2 == pytest.approx([0.5, 0.5])
    assert abs(both[0] @ [0, 1, 1] / math.sqrt(2.0)) == pytest.approx(1.0)
    assert abs(both[0] @ [0, 1, -1]) == pytest.approx(0.0, abs=1e-15)


def test_coupling_matrix_is_that_of_the_convention():
    assert coupler_matrix(math.pi / 4.0) == pytest.approx(np.array([[1, 1j], [1j, 1]]) / math.sqrt(2.0))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: models.coupler(coupling=1.2), "coupling must be finite and between 0 and 1; got 1.2"),
        (lambda: models.waveguide(length=-1.0), "length_m must be finite and at least 0"),
        (lambda: models.mzi(loss_db=-0.1), "a loss in dB must be finite and at least 0; got -0.1"),
        (lambda: models.crossing(loss_db=0.0), "would amplify; raise loss_db or crosstalk_db"),
        (lambda: models.mzi(wl=math.nan), "wl must be finite"),
    ],
)
def test_a_part_that_cannot_be_is_refused(call, words):
    with pytest.raises(ParameterError, match=words):
        call()


def test_a_port_that_is_not_listed_is_refused():
    with pytest.raises(ParameterError, match="port 'out0' of the circuit is not listed"):
        scattering_matrix(models.waveguide(), ("in0", "out1"))


def test_what_enters_a_column_leaves_in_a_row():
    one_way = scattering_matrix({("in0", "out0"): np.array(0.5 + 0j)}, ("in0", "out0"))
    assert one_way == pytest.approx(np.array([[0.0, 0.0], [0.5, 0.0]]))


def test_every_range_of_the_table_holds_its_value():
    for row in transfer_table().rows:
        assert row.low is None or row.low <= row.value, row.where
        assert row.high is None or row.high >= row.value, row.where


def test_a_circuit_solver_calls_the_models_unchanged():
    sax = pytest.importorskip("sax")
    netlist = {
        "instances": {
            "split": {"component": "coupler", "settings": {"error_rad": 0.03, "loss_db": 0.0}},
            "arm": {"component": "phase_shifter", "settings": {"phase_rad": 1.3, "loss_db": 0.0}},
            "join": {"component": "coupler", "settings": {"loss_db": 0.0}},
        },
        "connections": {"split,out0": "arm,in0", "arm,out0": "join,in0", "split,out1": "join,in1"},
        "ports": {"in0": "split,in0", "in1": "split,in1", "out0": "join,out0", "out1": "join,out1"},
    }
    known = {"coupler": models.coupler, "phase_shifter": models.phase_shifter}
    circuit, _ = sax.circuit(netlist=netlist, models=known)
    found = sax.sdict(circuit(wl=WL))
    expected = models.mzi(wl=WL, theta_rad=1.3, first_rad=0.03, loss_db=0.0)
    for pair, value in expected.items():
        assert np.asarray(found[pair]) == pytest.approx(value, abs=1e-5)


def test_a_perfect_chip_has_no_errors():
    none = MeshErrors.none(MeshLayout(modes=5))
    assert not any(np.any(getattr(none, name)) for name in ("splitter_rad", "theta_rad", "output_rad"))
