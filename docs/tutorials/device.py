"""A device of your own: an output converter from a data sheet, in a core that ships."""

from dataclasses import replace

import heliograph as hg
from optical.cores import load_core
from optical.devices import Converter

# A converter is one measured point: bits, effective bits, power and rate belong together. Units are SI.
mine = Converter(name="my_adc", nominal_bits=8.0, enob_bits=7.1, power_w=0.025, rate_hz=8e9, area_m2=5e-9)

crossbar = load_core("crossbar")
system = hg.system("photonic_packet", core="crossbar", accelerators=16).with_(
    {"lighting.target": "none", "operands": "gaussian"}
)
plan = "tp=8,dp=2,global_batch=16,sequence_length=2048"

for core in (crossbar, replace(crossbar, adc=mine)):
    result = hg.simulate(system.with_core(core), "llama-3-8b", plan)
    print(
        f"{core.adc.name}: {result.energy_per_token_j * 1e3:.1f} mJ a token, {result.snr_db:.1f} dB, "
        f"{result.system.photonic.cores} cores"
    )
