"""A torch model on a core: every product of a small transformer comes out as the core's link budget says."""

import torch
from torch import nn

from optical.conversion import Mode, Policy, convert, noise_key
from optical.cores import load_core

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
model = nn.Sequential(nn.Embedding(256, 64), nn.TransformerEncoder(layer, 2), nn.Linear(64, 256))
tokens = torch.randint(256, (8, 33))
exact = model(tokens)
for name in ("crossbar", "homodyne", "mzi_mesh"):
    noisy = convert(model, load_core(name), policy=Policy(mode=Mode.HARDWARE, electronic=("2",)))
    with noise_key(seed=0, step=0):
        error = (noisy(tokens) - exact).square().mean() / exact.square().mean()
    print(f"{name}: {-10 * torch.log10(error):.1f} dB of signal over noise at the logits")
