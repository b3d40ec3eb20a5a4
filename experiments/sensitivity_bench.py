"""A trained model on which noise is tried: the worker's part of a prediction and its execution."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experiments.accuracy import Arithmetic, products_of
from experiments.sensitivity_records import DECIBEL, PROBE_DB
from heliograph.keys import mix_key
from workloads.error_classes import ErrorClass

if TYPE_CHECKING:
    from experiments.sensitivity import Effort
    from heliograph.interfaces import Numerics
    from workloads.corpora import Corpus
    from workloads.gpt import Gpt
    from workloads.training import TrainingConfig

_PROBE_STREAM = 7


@dataclass(frozen=True, kw_only=True, eq=False)
class Bench:
    """A trained model with the text that it is judged by."""

    model: Gpt
    """The model; what runs its products changes with every trial."""
    training: TrainingConfig
    """How it was trained, which says on which windows it is judged."""
    corpus: Corpus
    """The text."""

    def calibrate(self, effort: Effort) -> dict[str, Any]:
        """Return how the loss depends on noise and gain of each product, as plain data."""
        from workloads.probes import (  # noqa: PLC0415 - torch, only to execute
            GainResponse,
            gain_response,
            sites,
        )

        clean = self.loss({}, 0)
        response = GainResponse(first={}, second={})
        if effort.gains:
            response = gain_response(self.model, self.training, self.corpus)
        names = tuple(sites(self.model.config))
        return {
            "clean": clean,
            "single": {
                name: {
                    one: self._pairs(effort, (name,), PROBE_DB, one, clean) for one in effort.error_classes
                }
                for name in names
            },
            "first": response.first,
            "second": response.second,
            "together": [
                [db, *self._pairs(effort, names, db, ErrorClass.OUTPUT, clean)] for db in effort.ladder_db
            ],
        }

    def loss(self, chosen: dict[str, Numerics], draw: int) -> float:
        """Return the loss with products at these sites run by other numerics, the draw with this number."""
        from workloads.probes import place  # noqa: PLC0415 - torch, only to execute
        from workloads.training import validate  # noqa: PLC0415 - torch, only to execute

        place(self.model, chosen)
        seed = mix_key(self.training.seed, _PROBE_STREAM, draw)
        return validate(self.model, dataclasses.replace(self.training, seed=seed), self.corpus)

    def _pairs(
        self, effort: Effort, names: tuple[str, ...], snr_db: float, error_class: ErrorClass, clean: float
    ) -> list[float]:
        """Return the mean rise of each draw and its mirror image, of Gaussian errors at these sites."""
        from workloads.probes import probe  # noqa: PLC0415 - torch, only to execute

        nsr = 10.0 ** (-snr_db / DECIBEL)
        both = [dict.fromkeys(names, probe(error_class, nsr, sign, uneven=effort.uneven)) for sign in (1, -1)]
        return [sum(self.loss(one, draw) for one in both) / 2.0 - clean for draw in range(effort.pairs)]

    def execute(self, arithmetic: Arithmetic, pairs: int) -> dict[str, Any]:
        """Return what the core does to the loss, each draw and its mirror image, and its measured errors.

        Notes
        -----
        Every draw is another chip of the same design, so that the scatter of draws holds that of chips.
        """
        from workloads.measured_products import (  # noqa: PLC0415 - torch, only to execute
            MeasuredProducts,
            MirroredProducts,
        )
        from workloads.probes import sites  # noqa: PLC0415 - torch, only to execute

        clean = self.loss({}, 0)
        names = [
            name
            for name, (_, product) in sites(self.model.config).items()
            if product.name.lower() not in arithmetic.exact_products
        ]
        drawn: list[float] = []
        mirrored: list[float] = []
        nsr: list[dict[str, dict[ErrorClass, float]]] = []
        gain: list[dict[str, float]] = []
        for draw in range(pairs):
            numerics = products_of(_chip(arithmetic, draw)).forward
            plain = {name: MeasuredProducts(numerics) for name in names}
            drawn.append(self.loss(dict(plain), draw) - clean)
            nsr.append({name: one.meter.nsr for name, one in plain.items()})
            gain.append({name: one.meter.gain for name, one in plain.items()})
            images = {name: MirroredProducts(one.errors) for name, one in plain.items()}
            mirrored.append(self.loss(dict(images), draw) - clean)
        return {
            "drawn": drawn,
            "mirrored": mirrored,
            "nsr": {
                name: {one: math.fsum(draw[name][one] for draw in nsr) / pairs for one in ErrorClass}
                for name in names
            },
            "gain": {name: math.fsum(draw[name] for draw in gain) / pairs for name in names},
        }


def _chip(arithmetic: Arithmetic, draw: int) -> Arithmetic:
    """Return the arithmetic on another chip for each draw, where chips differ; the first is its own."""
    if arithmetic.analog is None:
        return arithmetic
    specs = {}
    for phase, spec in arithmetic.analog.items():
        chip = spec.chip and dataclasses.replace(spec.chip, seed=spec.chip.seed + draw)
        specs[phase] = dataclasses.replace(spec, chip=chip)
    return dataclasses.replace(arithmetic, analog=specs)
