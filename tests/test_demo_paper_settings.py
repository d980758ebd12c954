"""Experiments and networks are those of the paper's Section 4 and appendix, typed from its text."""

import json
from dataclasses import asdict
from itertools import pairwise

import pytest
import torch
from demo_files import of_the_paper

import sigua

experiments, networks, settings = of_the_paper("experiments", "networks", "settings")
PAPER, CPU = experiments.Options(), experiments.Options(preset="cpu")
OFFICIAL = experiments.Options(variant="official")
NOISES = {"sym-20": 0.2, "sym-50": 0.5, "pair-45": 0.45}
SHARES = {"mnist": [0.4, 0.3, 0.7], "cifar10": [0.4, 0.3, 0.3]}
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
    assert {(run.net, run.epochs, run.batch, run.optimizer) for run in found.values()} == {
        ("cnn9", 200, 128, ADAM_LINEAR)
    }
    made = {(run.noise, key[1]): run.make_method(10) for key, run in found.items()}
    expected = {}
    for noise, rate in NOISES.items():
        gamma = 0.001 if (data, noise) == ("mnist", "pair-45") else 0.01
        expected[noise, "standard"] = sigua.standard()
        expected[noise, "self-teaching"] = sigua.self_teaching(rate, warmup=10)
        expected[noise, "SIGUA_SL"] = sigua.sigua_sl(rate, delta=0.1, gamma=gamma, warmup=10)
        expected[noise, "agreement"] = sigua.sigua_ag(warmup=10)
    assert list(found) == list(expected)
    assert made == expected


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
    assert optimizer.lr == 0.001
    for (noise, method), run in found.items():
        family, rate = noise.split("-")
        make = {"sym": sigua.TransitionMatrix.symmetric, "pair": sigua.TransitionMatrix.pair}
        T = make[family](int(rate) / 100, classes)
        assert (run.net, run.epochs, run.batch, run.optimizer) == ("cnn9", 200, 128, optimizer)
        if method != "SIGUA_BC classes":
            expected = {
                "BC": sigua.backward_correction(T),
                "nnBC": sigua.nn_backward_correction(T, over="label"),
                "SIGUA_BC": sigua.sigua_bc(T, gamma=1.0, over="label"),
                "SIGUA_BC batch": sigua.sigua_bc(T, gamma=1.0, over="batch"),
                "forward": sigua.forward_correction(T),
            }[method]
            assert run.make_method(classes) == expected
    assert {noise for noise, _ in found} == NOISES.keys()
    assert found["sym-20", "SIGUA_BC classes"].make_method(classes).over == "classes"


def test_open_set_noise_is_40_percent_of_cifar_10_on_the_network_of_table_5():
    found = runs("openset")
    for run in found.values():
        assert (run.data, run.net, run.noise, run.noise_rate) == ("cifar10", "cnn6", "open-40", 0.4)
    assert found["open-40", "SIGUA_SL"].make_method(10) == sigua.sigua_sl(0.4, delta=0.1)
    assert found["open-40", "BC"].optimizer.name == "sgd"


@pytest.mark.parametrize(("data", "shares"), SHARES.items())
def test_official_variant_takes_the_authors_shares_ramp_and_late_beta1(data, shares):
    found = runs(f"set1-{data}", OFFICIAL)
    for (noise, rate), share in zip(NOISES.items(), shares, strict=True):
        method = found[noise, "SIGUA_SL"].make_method(10)
        assert (method.noise_rate, method.delta, method.variant) == (rate, share, "official")
        assert method.condition.at(9) == method.condition.at(200) != method.condition.at(8)
    assert found["sym-50", "SIGUA_SL"].optimizer.late_beta1 == 0.1


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


# Networks.

MNIST, CIFAR = (1, 28, 28), (3, 32, 32)


def conv(before, after):
    """Return the parameters of a 3 x 3 convolution with bias and of its batch normalisation."""
    return 9 * before * after + after + 2 * after


CNN9 = sum(conv(*pair) for pair in pairwise([128, 128, 128, 256, 256, 256, 512, 256, 128]))
CNN6 = sum(conv(*pair) for pair in pairwise([3, 64, 64, 128, 128, 196, 196]))
COUNTS = {
    # "a wide network ... which has 8,871k parameters coming from 5 trainable layers"
    ("wide", MNIST, 10): (784 * 10_000 + 10_000 * 100 + 100 * 10 + 10_110 + 2 * 10_100, 5),
    # "a deep network ... which has 1,405k parameters coming from 11 trainable layers"
    ("deep", MNIST, 10): (784 * 500 + 4 * 500 * 500 + 5000 + 2510 + 2 * 2500, 11),
    # "it has 9 convolutional layers but 19 trainable layers"
    ("cnn9", MNIST, 10): (conv(1, 128) + CNN9 + 1290, 19),
    ("cnn9", CIFAR, 100): (conv(3, 128) + CNN9 + 12_900, 19),
    # "It has 6 convolutional layers but 13 trainable layers"
    ("cnn6", CIFAR, 10): (CNN6 + 196 * 4 * 4 * 10 + 10, 13),
    ("mlp", MNIST, 10): (784 * 256 + 256 * 256 + 256 * 10 + 522, 3),
    ("mlp-bn", MNIST, 10): (784 * 256 + 256 * 256 + 256 * 10 + 522 + 4 * 256, 5),
}


@pytest.mark.parametrize("key", COUNTS, ids=lambda key: f"{key[0]}-{key[2]}")
def test_image_network_has_the_parameters_and_layers_counted_by_hand(key):
    net = networks.make(*key)
    assert (networks.parameters(net), networks.trainable_layers(net)) == COUNTS[key]


def test_words_are_averaged_without_the_padding_or_are_channels_of_a_sequence():
    """By hand: words (1, 2) and (3, 4), whose mean is (2, 3); a text without words is zero."""
    vectors = torch.tensor([[0.0, 0.0], [1.0, 2.0], [3.0, 4.0]])
    tokens = torch.tensor([[1, 2, 0, 0], [2, 0, 0, 0], [0, 0, 0, 0]])
    assert networks.Mean(vectors)(tokens).tolist() == [[2, 3], [3, 4], [0, 0]]
    found = networks.Sequence(vectors)(torch.tensor([[1, 0, 2]]))
    assert found.tolist() == [[[1, 0, 3], [2, 0, 4]]]
