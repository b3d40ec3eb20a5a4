"""A study: over which laser powers and reconfiguration times does light on optical circuits pay?"""

import heliograph as hg

plan = "tp=8,pp=2,dp=2,global_batch=16,sequence_length=2048"
packets = hg.simulate("gpu_packet:fp8", "llama-3-8b", plan)
grid = hg.sweep(
    hg.system("photonic_ocs", accelerators=32),
    {"laser_power_w": ["200 mW", "400 mW"], "fabric.switch.switch_s": ["1 us", "1 ms", "25 ms"]},
    model="llama-3-8b",
    plan=plan,
)
for row in grid.rows():
    time = row["step_time_s"] / packets.step_time_s
    energy = row["energy_per_token_j"] / packets.energy_per_token_j
    told = f"{row['laser_power_w'] * 1e3:.0f} mW, {row['fabric.switch.switch_s'] * 1e3:g} ms"
    print(f"{told}: {time:.2f} of the GPU's time, {energy:.2f} of its energy, {row['snr_db']:.1f} dB")
grid.to_csv("study.csv")
