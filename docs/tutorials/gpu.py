"""A GPU of your own: a shipped one with the numbers that change."""

import heliograph as hg

plan = "tp=8,dp=2,global_batch=16,sequence_length=4096"
h100 = hg.system("gpu_packet:fp8", accelerators=16)
mine = h100.with_(
    {"gpu.memory.bandwidth_bytes_per_s": "4.8 TB/s", "gpu.memory.capacity_bytes": "141 GB", "tdp_w": "650 W"}
)
for system in (h100, mine):
    result = hg.simulate(system, "llama-3-8b", plan)
    print(f"{result.step_time_s * 1e3:.0f} ms, {result.energy_per_token_j * 1e3:.1f} mJ a token")
    print("  changed:", system.settings_text() or "nothing")
