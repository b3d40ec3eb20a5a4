"""`heliograph cost jobs`: several jobs and failures from a file."""

import json

import pytest

import heliograph as hg
from experiments.cli import BAD_INPUT
from experiments.cost.jobs import run_jobs
from simulator.results import Stream
from tests import builders

TOP = 'system = "gpu_ocs"\naccelerators = 32\n'
JOB = '[[job]]\nname = "{name}"\nmodel = "gpt2"\nplan = "tp=4,dp=4,global_batch=16"\n'
TWO = TOP + JOB.format(name="a") + JOB.replace("dp=4", "dp=2").format(name="b")


def call(capsys, tmp_path, text, *options):
    file = tmp_path / "jobs.toml"
    file.write_text(text, encoding="utf-8")
    return builders.call(capsys, "cost", "jobs", file, *options)


def record(capsys, tmp_path, text):
    code, out, err = call(capsys, tmp_path, text, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_jobs_stand_side_by_side(capsys, tmp_path):
    jobs = record(capsys, tmp_path, TWO)["jobs"]
    assert [job["endpoints"] for job in jobs] == [list(range(16)), list(range(16, 24))]
    assert [job["slowdown"] for job in jobs] == pytest.approx([1.0, 1.0], rel=1e-9)
    code, out, _ = call(capsys, tmp_path, TWO)
    assert code == 0
    assert "slow-down" in out


def test_times_of_a_file_may_have_units(tmp_path):
    path = tmp_path / "jobs.toml"
    found = []
    for start in ("0.25", "'250 ms'"):
        path.write_text(TWO + f"start_s = {start}\n")
        found.append([run.job.start_s for run in run_jobs(path).runs])
    assert found[0] == found[1] == [0.0, 0.25]


def test_a_spare_node_costs_a_takeover_and_circuits(tmp_path):
    """The failed node's peers turn their circuits to the spare, and gradients in flight start again."""
    file = tmp_path / "jobs.toml"
    file.write_text(TWO, encoding="utf-8")
    whole = run_jobs(file).runs
    gradients = [span for span in whole[0].trace.spans if span.name.startswith("dp")][-1]
    middle_s = (gradients.start_s + gradients.end_s) / 2
    failure = (
        f"[[failure]]\ntime_s = {middle_s}\nendpoints = [0,1,2,3,4,5,6,7]\n"
        "spares = [24,25,26,27,28,29,30,31]\ntakeover_s = 0.05\n"
    )
    file.write_text(TWO + failure, encoding="utf-8")
    hurt = run_jobs(file).runs
    assert hurt[1].step_time_s == pytest.approx(whole[1].step_time_s)
    assert hurt[0].trace.reconfigurations == whole[0].trace.reconfigurations + 1
    again_s = middle_s - gradients.start_s
    moved_s = sum(span.duration_s for span in hurt[0].trace.spans if span.stream is Stream.CIRCUITS)
    lost_s = hurt[0].step_time_s - whole[0].step_time_s
    assert moved_s > 0.0
    # Rounds that were over are not sent again.
    assert 0.05 < lost_s <= (0.05 + again_s + moved_s) * (1 + 1e-9)


def test_a_spare_port_ends_the_loss_of_a_lane(capsys, tmp_path):
    """Without it the lane is gone for the rest of the step; with it, for the move of fibre and mirror."""
    failure = "[[failure]]\ntime_s = 0.0\nports = [[0, 0], [1, 0]]\n"
    whole, gone, spared = (
        record(capsys, tmp_path, TWO + more)
        for more in ("", failure, failure + "spare_ports = 2\ntakeover_s = 0.001\n")
    )
    times = [one["jobs"][0]["step_time_s"] for one in (whole, spared, gone)]
    assert times[0] <= times[1] < times[2]
    assert [len(one["failures"]) for one in (gone, spared)] == [1, 1]
    assert spared["failures"][0]["repair_s"] > 0.001


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TWO.replace("gpt2", "gpt9", 1), "gpt9"),
        (
            TWO.replace('name = "b"', 'nane = "b"'),
            "jobs.toml:7: job 2: unknown key 'nane'; did you mean 'name'",
        ),
        (TWO.replace('name = "b"', 'name = "a"'), "jobs.toml:7: job 2: 'a' is another job's name too"),
        (
            TWO.replace("accelerators = 32", "accelerators = 16"),
            "job 'b': optical rails has endpoints 0 to 15",
        ),
        (TWO + 'first = "x"\n', "job 2: 'first' must be a whole number; got 'x'"),
        (TWO.replace("global_batch=16", "global_batch=15"), "jobs.toml:3: job 1: "),
        (TWO + "[[failure]]\nlinks = [1]\n", "jobs.toml:11: failure 1: key 'time_s' is missing"),
        (TWO + "[[failure]]\ntime_s = 0.1\n", "name the links or the endpoints"),
        (TWO + "[[failure]]\ntime_s = 0.0\nendpoints = [3]\n", "traffic waits for ever for endpoint 3"),
        (
            TWO + "[[failure]]\ntime_s = 0.0\nnodes = [9]\n",
            "jobs.toml:11: failure 1: optical rails has no node 9; choices: 0 to 3",
        ),
        (
            TWO + "[[failure]]\ntime_s = 0.0\nswitches = [40]\n",
            "optical rails has no switch 40; choices: 0 to 0",
        ),
        (
            TWO + "[[failure]]\ntime_s = 0.0\nports = [[0, 9]]\n",
            "jobs.toml:11: failure 1: optical rails has no port of endpoint 0 9; choices: 0 to 3",
        ),
        (
            TWO + "[[failure]]\ntime_s = 0.0\nports = [[0, 0]]\nspare_ports = 2\n",
            "spare_ports (2) must be from 1 to the number of ports that fail (1)",
        ),
        (
            TWO + "[[failure]]\ntime_s = 0.0\nports = [[0, 0]]\nspare_ports = 1\nshare = 0.5\n",
            "jobs.toml:11: failure 1: 'share' says nothing of ports that spare_ports replace",
        ),
        (
            TWO + "[[failure]]\ntime_s = 0.0\nswitches = [0]\n",
            "traffic waits for ever for port 0 of endpoint 0 and 127 more of optical rails",
        ),
        (
            TWO + "[[failure]]\ntime_s = 0.0\nlinks = [3]\nshare = 1.5\n",
            "share must be above 0 and at most 1; got 1.5",
        ),
        (
            TWO + "[[failure]]\ntime_s = 0.0\nports = [1]\n",
            "'ports' must be a list of pairs [endpoint, lane]",
        ),
        (
            TWO + "[[failure]]\ntime_s = '5 GB'\nswitches = [0]\n",
            "jobs.toml:11: failure 1: time_s",
        ),
        (TOP + "[[jobs]]\nname = 'a'\n", "unknown key 'jobs'; did you mean 'job'?"),
        (TOP, "there is no [[job]]"),
        (JOB, "key 'system' is missing"),
        (TWO.replace("[[job]]", "[job]", 1), "jobs.toml"),
    ],
)
def test_what_is_wrong_in_a_file_is_one_sentence(capsys, tmp_path, text, said):
    code, out, err = call(capsys, tmp_path, text)
    assert code == BAD_INPUT
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


def test_a_job_has_the_sides_that_its_step_has(tmp_path):
    """Sides of a torus that nobody chose go by the plan; a cube takes 48 % longer here."""
    plan = "tp=16,dp=16,global_batch=16,sequence_length=2048"
    file = tmp_path / "jobs.toml"
    text = (
        f'system = "gpu_packet@torus"\naccelerators = 256\n[[job]]\nmodel = "llama-3-8b"\nplan = "{plan}"\n'
    )
    file.write_text(text, encoding="utf-8")
    step = hg.simulate("gpu_packet@torus", "llama-3-8b", plan)
    shared = run_jobs(file)
    assert shared.runs[0].step_time_s == pytest.approx(step.metrics.step_time_s, rel=1e-6)
    assert shared.system.fabric.shape == step.system.fabric.shape != (8, 8, 4)
