"""Small models of many architectures, each with its inputs; products as people write them."""

import math

import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS, LENGTH, TOKENS = 24, 4, 6, 40


def tokens():
    return (torch.randint(TOKENS, (2, LENGTH)),)


def features(*shape):
    return lambda: (torch.randn(shape),)


class Gpt(nn.Module):
    """Pre-norm blocks, packed projections, attention written out, a head tied to the embedding."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.mlp = nn.Sequential(nn.Linear(WIDTH, 48), nn.GELU(), nn.Linear(48, WIDTH))

        def forward(self, x):
            batch, length, _ = x.shape
            qkv = self.qkv(self.norms[0](x)).view(batch, length, 3, HEADS, -1)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
            later = torch.ones(length, length, dtype=torch.bool).triu(1)
            weights = scores.masked_fill(later, -math.inf).softmax(-1)
            x = x + self.out((weights @ v).transpose(1, 2).reshape(x.shape))
            return x + self.mlp(self.norms[1](x))

    def __init__(self):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(TOKENS, WIDTH), nn.Parameter(torch.randn(LENGTH, WIDTH))
        self.blocks = nn.ModuleList(self.Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, TOKENS, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Llama(nn.Module):
    """Rotary angles, grouped queries, SwiGLU, RMS norm."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList([nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)])
            self.q, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
            self.k, self.v = (nn.Linear(WIDTH, WIDTH // 2, bias=False) for _ in range(2))
            self.gate, self.up = (nn.Linear(WIDTH, 40, bias=False) for _ in range(2))
            self.down = nn.Linear(40, WIDTH, bias=False)

        def forward(self, x, angles):
            h = self.norms[0](x)
            q, k, v = (
                part(h).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
                for part in (self.q, self.k, self.v)
            )
            q, k = (torch.cat([-y[..., 1::2], y[..., ::2]], -1) * angles.sin() + y for y in (q, k))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + self.out(y.transpose(1, 2).flatten(2))
            h = self.norms[1](x)
            return x + self.down(functional.silu(self.gate(h)) * self.up(h))

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(TOKENS, WIDTH), nn.Linear(WIDTH, TOKENS, bias=False)
        self.blocks = nn.ModuleList(self.Block() for _ in range(2))

    def forward(self, tokens):
        places, rates = torch.arange(tokens.shape[1]).float(), 1.0 / torch.arange(1, WIDTH // HEADS + 1)
        angles, x = places[:, None] @ rates[None], self.embedding(tokens)
        for block in self.blocks:
            x = block(x, angles)
        return self.head(x)


class Bert(nn.Module):
    """torch's own encoder with padding, and a pooled head."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 48, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.pooler, self.labels = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, tokens):
        padding = torch.arange(tokens.shape[1]) >= torch.tensor([[LENGTH], [LENGTH - 2]])
        x = self.encoder(self.embedding(tokens), src_key_padding_mask=padding)
        return self.labels(self.pooler(x[:, 0]).tanh())


class VisionTransformer(nn.Module):
    """Patches by a convolution, attention with its weights asked for."""

    def __init__(self):
        super().__init__()
        self.patches, self.labels = nn.Conv2d(3, WIDTH, 4, stride=4), nn.Linear(WIDTH, 5)
        self.first = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, add_bias_kv=True, batch_first=True)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1)
        y, weights = self.attention(x, x, x, need_weights=True)
        return self.labels((x + y)[:, 0]), weights


class Mixture(nn.Module):
    """A router, and experts of which each token visits two; expert 3 is visited by nobody."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 32), nn.SiLU(), nn.Linear(32, WIDTH)) for _ in range(4)
        )

    def forward(self, x):
        flat = x.flatten(0, -2)
        shares, chosen = self.router(flat)[:, :3].softmax(-1).topk(2)
        y = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            rows, place = (chosen == number).nonzero(as_tuple=True)
            y = y.index_add(0, rows, expert(flat[rows]) * shares[rows, place, None])
        return y.view_as(x)


class FusedMixture(nn.Module):
    """Experts in one tensor, all run by one operation, once by batches and once by groups."""

    def __init__(self):
        super().__init__()
        self.up = nn.Parameter(torch.randn(3, WIDTH, 32) / 5)
        self.down = nn.Parameter(torch.randn(3, 32, WIDTH) / 5)

    def forward(self, x):
        hidden = torch.bmm(x.expand(3, -1, -1), self.up).relu().mean(0)
        ends = torch.tensor([2, 2, 8], dtype=torch.int32)
        return functional.grouped_mm(hidden.bfloat16(), self.down.bfloat16(), offs=ends).float()


class T5(nn.Module):
    """Encoder and decoder with biases by relative place and unscaled scores, by Einstein sums."""

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
            self.places = nn.Embedding(2 * LENGTH, HEADS)

        def forward(self, x, memory):
            q = self.q(x).unflatten(-1, (HEADS, -1))
            k, v = (part(memory).unflatten(-1, (HEADS, -1)) for part in (self.k, self.v))
            far = torch.arange(x.shape[1])[:, None] - torch.arange(memory.shape[1]) + LENGTH
            scores = torch.einsum("bthd,bshd->bhts", q, k) + self.places(far).permute(2, 0, 1)
            y = torch.einsum("bhts,bshd->bthd", scores.softmax(-1), v)
            return x + self.out(y.flatten(2))

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.encoder, self.own, self.cross = (self.Attention() for _ in range(3))
        self.up, self.down = nn.Linear(WIDTH, 40, bias=False), nn.Linear(40, WIDTH, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        memory = self.encoder(x, x)
        y = self.cross(self.own(x, x), memory)
        y = y + self.down(self.up(y).relu())
        return torch.einsum("...c,vc->...v", y, self.embedding.weight)


class Convolutions(nn.Module):
    """A residual block, a depthwise convolution, and one over time."""

    def __init__(self):
        super().__init__()
        self.stem, self.same = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.Conv2d(8, 8, 3, padding="same")
        self.norm, self.depth = nn.BatchNorm2d(8), nn.Conv2d(8, 16, 3, stride=2, groups=8, dilation=2)
        self.time, self.labels = nn.Conv1d(16, 8, 3, padding=1, padding_mode="circular"), nn.Linear(8, 4)

    def forward(self, images):
        x = self.norm(self.stem(images)).relu()
        x = self.depth(x + self.same(x)).relu()
        return self.labels(self.time(x.flatten(2)).mean(-1))


class TransposedConvolutions(nn.Module):
    """An autoencoder: patches that overlap, gaps between them, groups, and one over time."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, stride=2)
        self.up = nn.ConvTranspose2d(8, 6, (3, 2), stride=(2, 3), padding=(1, 0), output_padding=(1, 2))
        self.depth = nn.ConvTranspose2d(6, 12, 2, stride=1, dilation=2, groups=3, bias=False)
        self.time, self.space = nn.ConvTranspose1d(12, 4, 3, padding=2), nn.ConvTranspose3d(4, 2, 2)

    def forward(self, images):
        x = self.depth(self.up(self.down(images)).relu()).relu()
        return self.space(self.time(x.flatten(2)).unflatten(2, (2, 1, -1)))


class Recurrent(nn.Module):
    """Layers of three kinds, two directions, packed sequences and a cell."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, 12, 2, bidirectional=True, batch_first=True)
        self.gru, self.rnn = nn.GRU(WIDTH, 10), nn.RNN(10, 8, nonlinearity="relu", bias=False)
        self.cell, self.lstm_cell = nn.GRUCell(8, 6), nn.LSTMCell(8, 6)

    def forward(self, x):
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([LENGTH, 3]), batch_first=True)
        y, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0])
        y, last = self.rnn(self.gru(y)[0])
        state, (other, _) = None, self.lstm_cell(y[0])
        for step in y:
            state = self.cell(step, state)
        return y, last, state + other


class SharedDepth(nn.Module):
    """One layer called several times, as in ALBERT, and a module that stands in two places."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.again = self.layer

    def forward(self, x):
        for _ in range(3):
            x = x + self.layer(x)
        return self.again(x)


class Nested(nn.Module):
    """Modules within modules, a bare parameter, and every way to write a product."""

    def __init__(self):
        super().__init__()
        self.inner = nn.ModuleDict({"mixture": Mixture(), "gate": nn.Sequential(nn.Linear(WIDTH, WIDTH))})
        self.weight, self.vector = nn.Parameter(torch.randn(WIDTH, WIDTH)), nn.Parameter(torch.randn(WIDTH))

    def forward(self, x):
        x = self.inner["mixture"](x) * self.inner["gate"](x).sigmoid()
        flat = x.flatten(0, 1)
        y = torch.addmm(self.vector, flat, self.weight) + flat.mm(self.weight.t()) + (self.weight @ flat.T).T
        z = torch.baddbmm(x, x, x.mT @ x, beta=0.5, alpha=0.1).flatten(0, 1)
        w = torch.tensordot(x, self.weight, dims=([2], [0])).flatten(0, 1) + torch.inner(flat, self.weight)
        v = flat.mv(self.vector)[:, None] + (self.vector @ flat.T)[:, None] + torch.dot(flat[0], flat[1])
        u = torch.linalg.multi_dot([flat, self.weight, self.weight]) + torch.chain_matmul(flat, self.weight)
        return y + z + w + v + u


ARCHITECTURES = {
    "gpt": (Gpt, tokens),
    "llama": (Llama, tokens),
    "bert": (Bert, tokens),
    "vision_transformer": (VisionTransformer, features(2, 3, 12, 8)),
    "mixture": (Mixture, features(2, LENGTH, WIDTH)),
    "fused_mixture": (FusedMixture, features(8, WIDTH)),
    "t5": (T5, tokens),
    "convolutions": (Convolutions, features(2, 3, 10, 8)),
    "transposed_convolutions": (TransposedConvolutions, features(2, 3, 10, 8)),
    "recurrent": (Recurrent, features(2, LENGTH, WIDTH)),
    "shared_depth": (SharedDepth, features(2, LENGTH, WIDTH)),
    "nested": (Nested, features(2, LENGTH, WIDTH)),
    "transformer": (
        lambda: nn.Transformer(WIDTH, HEADS, 1, 1, 40, dropout=0.0),
        lambda: (torch.randn(5, 2, WIDTH), torch.randn(4, 2, WIDTH)),
    ),
    "mlp_mixer": (
        lambda: nn.Sequential(nn.Linear(WIDTH, 30), nn.GELU(), nn.Flatten(), nn.Linear(30 * LENGTH, 3)),
        features(2, LENGTH, WIDTH),
    ),
}


def build(name):
    """Return a model and its inputs, always the same."""
    torch.manual_seed(7)
    make, given = ARCHITECTURES[name]
    model = make()
    return model, given()
