"""The networks of the paper's appendix: parameters counted by hand, layers as the paper counts."""

import importlib
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "paper"))
networks = importlib.import_module("networks")

MNIST, CIFAR = (1, 28, 28), (3, 32, 32)


def conv(before, after):
    """Return the parameters of a 3 x 3 convolution with bias and of its batch normalisation."""
    return 9 * before * after + after + 2 * after


BLOCKS_2_AND_3 = (
    *(conv(128, 256), conv(256, 256), conv(256, 256)),
    *(conv(256, 512), conv(512, 256), conv(256, 128)),
)
COUNTS = {
    # "a wide network ... which has 8,871k parameters coming from 5 trainable layers"
    ("wide", MNIST, 10): (784 * 10_000 + 10_000 * 100 + 100 * 10 + 10_110 + 2 * 10_100, 5),
    # "a deep network ... which has 1,405k parameters coming from 11 trainable layers"
    ("deep", MNIST, 10): (784 * 500 + 4 * 500 * 500 + 5000 + 2510 + 2 * 2500, 11),
    # "it has 9 convolutional layers but 19 trainable layers"
    ("cnn9", MNIST, 10): (conv(1, 128) + 2 * conv(128, 128) + sum(BLOCKS_2_AND_3) + 1290, 19),
    ("cnn9", CIFAR, 100): (conv(3, 128) + 2 * conv(128, 128) + sum(BLOCKS_2_AND_3) + 12_900, 19),
    # "It has 6 convolutional layers but 13 trainable layers"
    ("cnn6", CIFAR, 10): (
        sum(conv(*pair) for pair in pairwise([3, 64, 64, 128, 128, 196, 196]))
        + (196 * 4 * 4 * 10 + 10),
        13,
    ),
    ("mlp", MNIST, 10): (784 * 256 + 256 * 256 + 256 * 10 + 522, 3),
    ("mlp-bn", MNIST, 10): (784 * 256 + 256 * 256 + 256 * 10 + 522 + 4 * 256, 5),
}


@pytest.mark.parametrize("key", COUNTS, ids=lambda key: f"{key[0]}-{key[2]}")
def test_image_network_has_the_parameters_and_layers_counted_by_hand(key):
    net = networks.make(*key)
    assert (networks.parameters(net), networks.trainable_layers(net)) == COUNTS[key]


def test_nets_have_the_thousands_and_the_convolutions_that_the_paper_prints():
    for name, thousands in {"wide": 8871, "deep": 1405}.items():
        assert round(networks.parameters(networks.make(name, MNIST, 10)) / 1000) == thousands
    for name, layers in {"cnn9": 9, "cnn6": 6}.items():
        net = networks.make(name, CIFAR, 10)
        assert sum(isinstance(layer, torch.nn.Conv2d) for layer in net.modules()) == layers


def test_words_are_averaged_without_the_padding_or_are_channels_of_a_sequence():
    """By hand: words (1, 2) and (3, 4), whose mean is (2, 3); a text without words is zero."""
    vectors = torch.tensor([[0.0, 0.0], [1.0, 2.0], [3.0, 4.0]])
    tokens = torch.tensor([[1, 2, 0, 0], [2, 0, 0, 0], [0, 0, 0, 0]])
    assert networks.Mean(vectors)(tokens).tolist() == [[2, 3], [3, 4], [0, 0]]
    found = networks.Sequence(vectors)(torch.tensor([[1, 0, 2]]))
    assert found.tolist() == [[[1, 0, 3], [2, 0, 4]]]


def test_resnet18_is_torchvisions_with_a_stem_for_small_images():
    """11,173,962 is what is known for ResNet-18 on CIFAR-10; ImageNet's stem has 7,680 more."""
    try:
        importlib.import_module("torchvision.models")
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"torchvision cannot be imported: {str(error).splitlines()[0]}")
    net = networks.make("resnet18", CIFAR, 10).eval()
    assert networks.parameters(net) == 11_173_962
    assert net(torch.zeros(2, *CIFAR)).shape == (2, 10)
