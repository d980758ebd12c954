"""Every experiment has the settings of the paper's Section 4 and appendix, typed from its text."""

import importlib
import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

import sigua

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "paper"))
experiments = importlib.import_module("experiments")
settings = importlib.import_module("settings")

PAPER, CPU = experiments.Options(), experiments.Options(preset="cpu")
OFFICIAL = experiments.Options(variant="official")
NOISES = ["sym-20", "sym-50", "pair-45"]
ADAM_LINEAR = settings.Optimizer("adam", 0.001, (0.9, 0.999), decay="linear", decay_at=80)


def runs(name, options=PAPER, seed=0):
    """Return the runs of an experiment by panel and method."""
    return {(c.panel, c.method): c.run for c in experiments.EXPERIMENTS[name].cells(seed, options)}


def test_figure_1_is_momentum_sgd_without_decay_shifted_after_150_of_300_epochs():
    found = runs("fig1")
    assert found.keys() == {(n, m) for n in ("deep", "wide") for m in ("StopGrad", "SIGUA")}
    for (net, method), run in found.items():
        assert (run.data, run.net, run.noise, run.batch) == ("mnist", net, "sym-80", 1024)
        assert (run.epochs, run.shift) == (300, 150)
        assert run.optimizer == settings.Optimizer("sgd", lr=0.01, momentum=0.9, decay="none")
        gamma = 0.001 if method == "SIGUA" else 0.0
        assert run.make_method(10) == sigua.custom(sigua.Known(), gamma)
        assert run.trunk == found[net, "StopGrad"].trunk
        assert (run.trunk.epochs, run.trunk.shift) == (150, None)
        assert run.trunk.make_method(10) == sigua.standard()


@pytest.mark.parametrize("data", ["mnist", "cifar10", "cifar100"])
def test_set1_is_adam_in_its_default_with_a_linear_decay_from_epoch_80(data):
    found = runs(f"set1-{data}")
    assert list(found) == [
        (n, m) for n in NOISES for m in ("standard", "self-teaching", "SIGUA_SL", "agreement")
    ]
    for (noise, _), run in found.items():
        assert (run.noise, run.net, run.epochs, run.batch) == (noise, "cnn9", 200, 128)
        assert run.optimizer == ADAM_LINEAR
    for noise, rate in zip(NOISES, (0.2, 0.5, 0.45), strict=True):
        gamma = 0.001 if (data, noise) == ("mnist", "pair-45") else 0.01
        assert found[noise, "standard"].make_method(10) == sigua.standard()
        assert found[noise, "agreement"].make_method(10) == sigua.sigua_ag(warmup=10)
        teaching = found[noise, "self-teaching"].make_method(10)
        assert teaching == sigua.self_teaching(rate, warmup=10)
        ours = found[noise, "SIGUA_SL"].make_method(10)
        assert ours == sigua.sigua_sl(rate, delta=0.1, gamma=gamma, warmup=10)


@pytest.mark.parametrize(
    ("data", "optimizer", "classes"),
    [
        ("mnist", settings.Optimizer(betas=(0.9, 0.1), decay="step", decay_at=10), 10),
        ("cifar10", settings.Optimizer("sgd", momentum=0.9, decay="step", decay_at=20), 10),
        ("cifar100", settings.Optimizer("sgd", momentum=0.5, decay="step", decay_at=30), 100),
    ],
)
def test_set2_has_an_optimiser_for_each_data_set_and_gamma_1(data, optimizer, classes):
    found = runs(f"set2-{data}")
    matrices = {
        "sym-20": sigua.TransitionMatrix.symmetric(0.2, classes),
        "sym-50": sigua.TransitionMatrix.symmetric(0.5, classes),
        "pair-45": sigua.TransitionMatrix.pair(0.45, classes),
    }
    for (noise, method), run in found.items():
        T = matrices[noise]
        assert (run.net, run.epochs, run.batch, run.optimizer) == ("cnn9", 200, 128, optimizer)
        assert optimizer.lr == 0.001
        if method != "SIGUA_BC classes":
            expected = {
                "BC": sigua.backward_correction(T),
                "nnBC": sigua.nn_backward_correction(T, over="label"),
                "SIGUA_BC": sigua.sigua_bc(T, gamma=1.0, over="label"),
                "SIGUA_BC batch": sigua.sigua_bc(T, gamma=1.0, over="batch"),
                "forward": sigua.forward_correction(T),
            }[method]
            assert run.make_method(classes) == expected
    assert found["sym-20", "SIGUA_BC classes"].make_method(classes).over == "classes"


def test_open_set_noise_is_40_percent_of_cifar_10_on_the_network_of_table_5():
    found = runs("openset")
    for run in found.values():
        assert (run.data, run.net, run.noise, run.noise_rate) == ("cifar10", "cnn6", "open-40", 0.4)
    assert found["open-40", "SIGUA_SL"].make_method(10) == sigua.sigua_sl(0.4, delta=0.1)
    assert found["open-40", "BC"].optimizer.name == "sgd"


def test_official_variant_takes_the_authors_shares_ramp_and_late_beta1():
    found = runs("set1-mnist", OFFICIAL)
    for noise, rate, share in zip(NOISES, (0.2, 0.5, 0.45), (0.4, 0.3, 0.7), strict=True):
        method = found[noise, "SIGUA_SL"].make_method(10)
        assert (method.noise_rate, method.delta, method.variant) == (rate, share, "official")
        assert method.condition.at(9) == method.condition.at(200) != method.condition.at(8)
    assert found["sym-50", "SIGUA_SL"].optimizer.late_beta1 == 0.1
    shares = [runs("set1-cifar10", OFFICIAL)[noise, "SIGUA_SL"].delta for noise in NOISES]
    assert shares == [0.4, 0.3, 0.3]


def test_learning_rates_fall_as_the_paper_says():
    """By hand: linear to 0 from 80 to 200; divided by 10 every 10 epochs."""
    linear = [ADAM_LINEAR.factor(epoch, 200) for epoch in (0, 80, 110, 140, 199)]
    assert linear == pytest.approx([1, 1, 0.75, 0.5, 1 / 120])
    step = settings.Optimizer(decay="step", decay_at=10)
    assert [step.factor(epoch, 200) for epoch in (0, 9, 10, 29)] == pytest.approx([1, 1, 0.1, 0.01])
    assert settings.Optimizer().factor(199, 200) == 1


@pytest.mark.parametrize("name", list(experiments.EXPERIMENTS))
def test_runs_differ_by_seed_preset_and_precision_and_their_settings_are_json(name):
    bf16 = experiments.Options(precision="bf16")
    every = [runs(name), runs(name, seed=1), runs(name, CPU), runs(name, bf16)]
    ids = [{run.id for run in group.values()} for group in every]
    assert len(set.union(*ids)) == sum(map(len, ids))
    for run in every[0].values():
        assert json.loads(json.dumps(asdict(run)))["data"] == run.data
