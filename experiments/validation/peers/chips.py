"""Whole photonic chips from their parts: Albireo's counts of devices, and chips that parts explain partly.

Accuracies of built chips are executed with the noise of parts, on tasks of the published kind where the data
are not public or not here: points in two rings for a mesh of four ports, digits drawn from fonts at 28 x 28
pixels in place of MNIST.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.stats import unitary_group

from experiments.accuracy.photons import one_thread
from optical.cores.mzi_mesh import default_mesh
from optical.devices import (
    Converter,
    FormatLogic,
    Laser,
    Modulator,
    PassiveElement,
    Photodetector,
    Sram,
    SummingWires,
    Tia,
    device_table,
    mean_distance_m,
    programmable_table,
)
from optical.devices.electronics import ControlBlock, GainStage, ModulatorBias, Regulator, Serialiser, Wire
from optical.devices.limits import noise_of_bits, photon_energy_j
from optical.devices.programmable import Heater, MeshCoupler
from optical.execution.numerics import CountingNumerics, Signs
from optical.transfer.mesh import MeshErrors, MeshLayout, decompose, draw_errors
from simulator.errors import check_positive, check_range
from simulator.keys import mix_key
from simulator.tables import Constants, Table, shipped_table
from simulator.units import BITS_PER_BYTE, ELEMENTARY_CHARGE_C, ratio_from_db

if TYPE_CHECKING:
    import torch

    from workloads.training.classifier import Classifier, Digits

WORD_BYTES = 8
"""Bytes of an access to the cache."""
SHARES = 2.0
"""Causes between which the noise of an output is shared evenly, light and ADC; a choice."""
INPUT_BYTES = 1.0
"""Bytes of an input of a built chip, a choice."""
PORTS = 4
"""Ports of the mesh of Pai et al. (Science 380, 398), abstract."""
LAYERS = 3
"""Layers of the network on that mesh, abstract."""
POINTS = 250
"""Points of the task of that chip, four fifths of them to train on (recalled)."""
TRAINED = 200
"""Points to train on."""
UPDATES = 200
"""Updates of training, a choice: more change nothing."""
LEARNING_RATE = 0.03
"""Learning rate of Adam; a choice."""
CHIPS = 2
"""Chips and sets of points over which an accuracy is the mean; a choice."""
INNER = 0.55
"""Radius of the border between the two classes, of points spread evenly over a disc with radius 1; a choice
that makes them nearly as many as each other."""
MATRICES = 12
"""Matrices, each on another mesh, over which a fidelity is the mean; a choice."""
DIGIT_IMAGES = 3000
"""Digits to train on; as `heliograph accuracy photons --quick` takes."""
TEST_IMAGES, DRAWS = 500, 16
"""Digits to classify, and draws of their photons."""
SIDE = 28
"""Pixels along an edge of a digit, as MNIST has."""


def published_table() -> Table:
    """Return the constants that publications give for their systems; nothing else uses them."""
    return shipped_table(Path(__file__).parent / "parameters" / "published.csv")


def current_for(noise: float, bandwidth_hz: float, noise_a_per_sqrt_hz: float) -> float:
    """Return the least photocurrent of a pair that is lit in full, in amperes.

    Parameters
    ----------
    noise : float
        Noise that light and amplifier may have, over the square of full scale (`noise_of_bits`).
    bandwidth_hz : float
        Bandwidth of that noise.
    noise_a_per_sqrt_hz : float
        Noise of the amplifier.

    Notes
    -----
    Full scale is I to either side, all of the light on one of the two. The root I of
    noise I^2 = (2 q I + i_n^2) B.
    """
    shot_a, density = ELEMENTARY_CHARGE_C * bandwidth_hz / noise, bandwidth_hz / noise
    return shot_a + math.sqrt(shot_a**2 + density * noise_a_per_sqrt_hz**2)


@dataclass(frozen=True, kw_only=True)
class Albireo:
    """Groups of units of star-coupled rows of rings.

    References
    ----------
    K. Shiflett et al., "Albireo", ISCA 2021, Table III and figure 9; counts as modelled by T. Andrulis
    et al., ISPASS 2024.
    """

    scenario: Constants
    """Power, energy and area of its devices; ``laser`` is for each multiplier that it lights, ``word`` an
    access of 64 bits. Devices' power was stated at ``rate_hz``, which the table of power, made at
    ``table_rate_hz``, does not follow."""
    groups: int = 9
    """Groups, each with outputs of its own."""
    units: int = 3
    """Units of a group, whose photocurrents add up."""
    stars: int = 3
    """Star couplers of a unit."""
    rows: int = 3
    """Weights per star coupler."""
    columns: int = 5
    """Outputs of a group."""
    inputs: int = 63
    """Wavelengths, one per input."""

    @property
    def multipliers(self) -> int:
        """Multiply-accumulates per symbol."""
        return self.weights * self.columns

    @property
    def weights(self) -> int:
        """Weights held at a time."""
        return self.groups * self.units * self.stars * self.rows

    @property
    def outputs(self) -> int:
        """Detector pairs, amplifiers and ADCs."""
        return self.groups * self.columns

    def power_parts_w(self) -> dict[str, float]:
        """Return the power by part when all multipliers are busy.

        Notes
        -----
        A multiplier has two rings, for weights of both signs. Every symbol converts all operands anew, reads
        the inputs and writes the outputs.
        """
        one = self.scenario
        operands = self.weights + self.inputs
        return {
            "MRR": one.ring_w * 2 * self.multipliers,
            "MZM": one.modulator_w * operands,
            "laser": one.laser_w * self.multipliers,
            "TIA": one.tia_j * one.rate_hz * self.outputs,
            "DAC": one.dac_j * one.rate_hz * operands,
            "ADC": one.adc_w * self.outputs,
            "cache": one.word_j * one.table_rate_hz * (self.inputs + self.outputs) / WORD_BYTES,
        }

    def area_parts_m2(self) -> dict[str, float]:
        """Return the area by part, without ADCs and photodiodes, whose sizes are not published."""
        one, stars = self.scenario, self.groups * self.units * self.stars
        return {
            "AWG": one.grating_area_m2 * stars,
            "star coupler": one.star_area_m2 * stars,
            "laser": one.laser_area_m2 * self.multipliers,
            "MZM": one.modulator_area_m2 * (self.weights + self.inputs),
            "MRR": one.ring_area_m2 * 2 * self.multipliers,
            "TIA": one.tia_area_m2 * self.outputs,
            "DAC": one.dac_area_m2 * (self.weights + self.inputs),
            "cache": one.cache_area_m2,
        }

    @property
    def energy_j_per_mac(self) -> float:
        """Energy of a multiply-accumulate when all multipliers are busy."""
        return sum(self.power_parts_w().values()) / (self.multipliers * self.scenario.table_rate_hz)


@cache
def load_albireo(scenario: str) -> Albireo:
    """Return Albireo in its ``conservative``, ``moderate`` or ``aggressive`` scenario."""
    return Albireo(scenario=published_table().constants(f"albireo_{scenario}"))


@dataclass(frozen=True, kw_only=True)
class MatrixVectorChip:
    """A chip that multiplies vectors by matrices held in modulators.

    Notes
    -----
    Charged are, from the rows of our own devices: a DAC with its serialiser, a modulator and its bias for
    each input; a slow DAC that holds each weight, and a balanced pair behind it; amplifier, gain stage and
    ADC for each output; reading of the inputs, scaling in block floating point where the chip has it,
    sequencer and clock of each core; a laser that gives the stated effective bits, with the ADC, against
    shot and amplifier noise over coupler, two modulators and a splitter tree; idle power of the transistors,
    at the rate of a GPU's; regulators. Not charged, since nothing is published of them: loading of weights,
    links to the host and between chips, loops that hold phases and temperature, and what the transistors do
    beyond being there.

    That every weight has detectors of its own follows from PACE's "more than 16,000 photonic components":
    64 modulators of inputs, 64 x 63 splitters, 64 x 64 weights with a pair of detectors each are 16,384. What
    a detector takes is charged once an output, for the row of the table holds that of the receiver.

    No number is fitted to the two chips. Which parts are counted was decided knowing what they draw.
    """

    name: str
    """Name of the rows."""
    side: int
    """Rows and columns of a core."""
    cores: int
    """Cores."""
    rate_hz: float
    """Vectors per second of a core."""
    effective_bits: float
    """Effective bits of an output, dimensionless."""
    detector_w: float
    """Power of one detector with its receiver, besides the amplifier."""
    transistors: float
    """Transistors, dimensionless; 0 where they are not published."""
    scaled: int
    """Whether blocks are scaled, 1 or 0, as in block floating point."""
    light_apart: int
    """Whether the published power has the light itself in it, 1, or the electrical power of its lasers, 0."""
    published_w: float
    """Published power, electrical and optical."""

    def __post_init__(self) -> None:
        check_range(self, "side", "cores", low=1)
        check_range(self, "transistors", "scaled", "light_apart", "detector_w")
        check_positive(self, "rate_hz", "effective_bits", "published_w")

    @property
    def lines(self) -> int:
        """Inputs, and outputs, of all cores."""
        return self.side * self.cores

    @property
    def macs_per_s(self) -> float:
        """Multiply-accumulates per second."""
        return self.side**2 * self.cores * self.rate_hz

    @property
    def published_j_per_mac(self) -> float:
        """Published energy of a multiply-accumulate."""
        return self.published_w / self.macs_per_s

    @property
    def received_w(self) -> float:
        """Light at one output that gives the effective bits with its ADC.

        Notes
        -----
        Half of the noise that the bits allow is that of light and amplifier; the ADC has the other.
        Every weight has a pair of detectors, whose currents meet in the amplifier of their output: as a
        power, its noise grows with their capacitance, as `optical.cores.analog.receiver_of` has it.
        """
        responsivity = device_table().build(Photodetector, "photodetector").responsivity_a_per_w
        wires = device_table().build(SummingWires, "summing_wires")
        crowd = 1.0 + wires.pair_load * (self.side - 1)
        density = device_table().build(Tia, "tia").noise_a_per_sqrt_hz * math.sqrt(crowd)
        allowed = noise_of_bits(self.effective_bits) / SHARES
        return current_for(allowed, self.rate_hz / 2.0, density) / responsivity

    @property
    def light_w(self) -> float:
        """Light of all sources together."""
        table = device_table()
        laser, modulator = table.build(Laser, "laser"), table.build(Modulator, "mzm_quoted")
        tree_db = math.ceil(math.log2(self.side)) * table.build(PassiveElement, "y_branch").insertion_loss_db
        loss_db = laser.coupling_loss_db + 2.0 * modulator.insertion_loss_db + tree_db
        return self.received_w * self.lines * ratio_from_db(loss_db)

    def power_parts_w(self, *, lasers: bool = True) -> dict[str, float]:
        """Return the power that parts explain.

        Parameters
        ----------
        lasers : bool
            Whether lasers count, with what regulates them.
        """
        wall_plug = device_table().build(Laser, "laser").wall_plug_efficiency
        parts = self._path_parts_w() | self._feeding_parts_w()
        laser_w = self.light_w if self.light_apart else self.light_w / wall_plug
        laser_w = laser_w if lasers else 0.0
        regulated_w = math.fsum(parts.values()) + (0.0 if self.light_apart else laser_w)
        regulators_w = regulated_w * device_table().build(Regulator, "regulator").loss
        return {"laser": laser_w} | parts | {"regulators": regulators_w}

    def _path_parts_w(self) -> dict[str, float]:
        """Return the power of converters, modulators and receivers."""
        table, symbols_per_s = device_table(), self.rate_hz * self.lines
        adc = table.build(Converter, "adc").rescaled(self.effective_bits + 0.5 * math.log2(SHARES))
        gain = table.build(GainStage, "gain_stage")
        return {
            "DAC": table.build(Converter, "dac").conversion_j * symbols_per_s,
            "modulators": (table.build(Modulator, "mzm_quoted").symbol_energy_j or 0.0) * symbols_per_s,
            "modulator bias": table.build(ModulatorBias, "modulator_bias").power_w * self.lines,
            "weight DACs": table.build(Converter, "tuning_dac").power_w * self.side * self.lines,
            "detectors": 2.0 * self.detector_w * self.lines,
            "amplifiers": table.build(Tia, "tia").power_w * self.lines,
            "gain stages": gain.symbol_energy_j * symbols_per_s,
            "ADC": adc.conversion_j * symbols_per_s,
        }

    def _feeding_parts_w(self) -> dict[str, float]:
        """Return the power of buffer, wires, serialisers, scaling, control and idle transistors.

        Wires cross the area of the weights and their DACs.
        """
        table, symbols_per_s = device_table(), self.rate_hz * self.lines
        wire, serialiser = table.build(Wire, "wire"), table.build(Serialiser, "serialiser")
        weight, driver = table.build(Modulator, "mzm_quoted"), table.build(Converter, "tuning_dac")
        area_m2 = self.side**2 * (weight.area_m2 + driver.area_m2)
        fetched_j = table.build(Sram, "sram").energy_j_per_byte
        fetched_j += wire.energy_j_per_byte(mean_distance_m(area_m2))
        logic = table.build(FormatLogic, "block_float_logic")
        tree_w = wire.clock_w(2.0 * self.side, area_m2, self.rate_hz)
        # of a transistor of a large chip that is on and does nothing: leakage, clocks, interfaces
        idle_w = published_table().constants("idle_logic").transistor_idle_w
        control_w = sum(table.build(ControlBlock, name).power_w for name in ("sequencer", "clock_source"))
        return {
            "buffer and wires": fetched_j * symbols_per_s * INPUT_BYTES,
            "serialisers": serialiser.energy_j_per_bit * BITS_PER_BYTE * symbols_per_s * INPUT_BYTES,
            "block scaling": self.scaled * (logic.element_j + logic.sample_j) * symbols_per_s,
            "control and clock": (control_w + tree_w) * self.cores,
            "idle transistors": idle_w * self.transistors,
        }

    @property
    def explained_j_per_mac(self) -> float:
        """Energy of a multiply-accumulate that parts explain."""
        return math.fsum(self.power_parts_w().values()) / self.macs_per_s

    @property
    def explained_share(self) -> float:
        """Share of the published power that parts explain, dimensionless."""
        return self.explained_j_per_mac / self.published_j_per_mac


@cache
def load_chip(name: str) -> MatrixVectorChip:
    """Return a published chip: ``pace`` or ``lightmatter_2025``."""
    return published_table().build(MatrixVectorChip, name)


def ring_points(seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return points in a disc, shape (points, 2), and whether each lies in its outer part."""
    draws = np.random.default_rng(seed)
    radius, angle = np.sqrt(draws.uniform(0.0, 1.0, POINTS)), draws.uniform(0.0, 2.0 * math.pi, POINTS)
    labels = (radius > math.sqrt(INNER)).astype(np.int64)
    points = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=1)
    return points, labels


def encoded(points: NDArray[np.float64]) -> NDArray[np.complex128]:
    """Return the fields of points, shape (ports, points): two coordinates, and the rest of a fixed power."""
    rest = np.sqrt(np.maximum(0.0, 1.0 - (points**2).sum(axis=1)) / 2.0)
    return np.stack((points[:, 0], points[:, 1], rest, rest)).astype(complex)


@cache
def mesh_accuracy() -> float:
    """Return the accuracy of a mesh of four ports and three layers that was trained in itself, 0 to 1.

    Notes
    -----
    Couplers are wrong by our table's angle, fixed for a chip and seen by its training; heaters drift by our
    table's phase between what they are set to and what light meets, drawn anew for every pass of the points,
    in training and in test. Behind each layer the fields' moduli are the inputs of the next; the powers of
    two ports each decide. Gradients are those of the chip as it is (in-situ backpropagation).
    """
    with one_thread():
        return float(np.mean([_one_chip(seed) for seed in range(CHIPS)]))


def _one_chip(seed: int) -> float:
    import torch  # noqa: PLC0415 - only to execute

    layout = MeshLayout(modes=PORTS)
    draws = np.random.default_rng(mix_key(seed, 1))
    coupler = programmable_table().build(MeshCoupler, "mesh_coupler")
    chips = [
        draw_errors(layout, splitter_rad=coupler.angle_error_rad, phase_rad=0.0, generator=draws)
        for _ in range(LAYERS)
    ]
    points, labels = ring_points(mix_key(seed, 2))
    fields, wanted = torch.from_numpy(encoded(points)), torch.from_numpy(labels)
    start = torch.Generator().manual_seed(mix_key(seed, 3))
    count = 2 * layout.count + PORTS
    phases = (
        2.0 * math.pi * torch.rand(LAYERS, count, generator=start, dtype=torch.float64)
    ).requires_grad_()
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([phases, scale], lr=LEARNING_RATE)
    for _ in range(UPDATES):
        powers = _powers(layout, phases, fields[:, :TRAINED], chips, draws)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(10.0 * scale * powers, wanted[:TRAINED]).backward()
        optimizer.step()
    with torch.no_grad():
        found = _powers(layout, phases, fields[:, TRAINED:], chips, draws).argmax(dim=1)
    return float((found == wanted[TRAINED:]).double().mean())


def _powers(
    layout: MeshLayout,
    phases: torch.Tensor,
    fields: torch.Tensor,
    chips: list[MeshErrors],
    draws: np.random.Generator,
) -> torch.Tensor:
    """Return the power in each half of the ports behind all layers, shape (points, 2)."""
    from optical.transfer.gradients import propagate  # noqa: PLC0415 - torch, only to execute

    drift_rad = programmable_table().build(Heater, "heater").drift_rad
    count = layout.count
    for layer, chip in enumerate(chips):
        drift = draw_errors(layout, splitter_rad=0.0, phase_rad=drift_rad, generator=draws)
        off = MeshErrors(
            splitter_rad=chip.splitter_rad,
            theta_rad=drift.theta_rad,
            phi_rad=drift.phi_rad,
            output_rad=drift.output_rad,
        )
        theta, phi, output = phases[layer].split((count, count, layout.modes))
        passed = propagate(layout, theta, phi, output, fields, errors=off)
        fields = passed.abs().to(passed.dtype)
    powers = (fields.real**2).T
    return powers.reshape(len(powers), 2, PORTS // 2).sum(dim=2)


@cache
def matrix_bits(modes: int, *, permutation: bool = False) -> float:
    """Return the effective bits of the moduli of a matrix that a mesh of our couplers and heaters is set to.

    Parameters
    ----------
    modes : int
        Inputs, and outputs, of a rectangular mesh.
    permutation : bool
        Whether the matrices are permutations, or else Haar-random unitary ones.

    Notes
    -----
    Amplitude fidelity F is the mean over inputs of what the moduli of a column and those wanted have in
    common; both have a sum of squares of one, so that they differ by 2 (1 - F) in mean square. The mesh is
    set by its decomposition, without knowing its couplers.
    """
    mesh, draws = default_mesh(), np.random.default_rng(mix_key(0, modes))
    lost = []
    for _ in range(MATRICES):
        wanted = np.eye(modes, dtype=complex)[draws.permutation(modes)]
        if not permutation:
            wanted = unitary_group.rvs(modes, random_state=draws)
        design = decompose(wanted)
        chip = draw_errors(
            design.layout,
            splitter_rad=mesh.coupler.angle_error_rad,
            phase_rad=mesh.phase_error_rad,
            generator=draws,
        )
        lost.append(1.0 - np.sum(np.abs(wanted) * np.abs(design.matrix(chip))) / modes)
    return -0.5 * math.log2(12.0 * 2.0 * float(np.mean(lost)))


@cache
def _digits() -> tuple[Classifier, Digits]:
    """Return a perceptron trained on digits drawn from fonts, and others to read."""
    from workloads.training.classifier import (  # noqa: PLC0415 - torch
        ClassifierConfig,
        draw_digits,
        train_classifier,
    )

    training = draw_digits(DIGIT_IMAGES, side=SIDE, generator=np.random.default_rng(1))
    test = draw_digits(TEST_IMAGES, side=SIDE, generator=np.random.default_rng(2))
    return train_classifier(ClassifierConfig(epochs=6), training), test


@cache
def digit_accuracy(photons_per_mac: float) -> float:
    """Return the accuracy of digits at a number of detected photons per multiplication, 0 to 1.

    Notes
    -----
    A perceptron 784-100-100-10 trained in exact arithmetic on digits drawn from fonts; every product of all
    its layers counts photons in pairs of ports for both signs (`CountingNumerics`), by Poisson's law alone. A
    mean over draws, since one of a photon each is off by 2 %.
    """
    from workloads.training.classifier import accuracy  # noqa: PLC0415 - torch, only to execute

    with one_thread():
        network, test = _digits()
        if math.isinf(photons_per_mac):
            return accuracy(network, test, [None] * len(network.weights_KM), key=1)
        products = CountingNumerics(photons_per_mac=photons_per_mac, signs=Signs.PAIR)
        layers = [products] * len(network.weights_KM)
        return math.fsum(accuracy(network, test, layers, key=key) for key in range(DRAWS)) / DRAWS


def photons_of(energy_j: float) -> float:
    """Return the photons of an energy at 1,550 nm."""
    return energy_j / photon_energy_j()
