"""The networks of the paper's appendix and of Figure 1, and small ones for the cpu preset.

Where the appendix leaves something open, this is what was chosen:

- `cnn9`: convolutions keep the size in blocks 1 and 2 and do not pad in block 3, the leaky ReLUs
  have PyTorch's slope of 0.01, and Dropout drops single activations, as printed. The authors' code
  drops whole channels, in evaluation, too; here dropout obeys eval().
- `cnn6`: its last layer is printed as Linear(256, 10), which nothing before it fits. After three
  poolings 196 channels of 4 x 4 are left; they are flattened, so it is Linear(3136, 10).
- `mlp-words` is printed with 2 classes where NEWS has 7; it has 7. A text is the mean of its words.
- The word vectors of both NEWS networks are given and stay as they are: they are no parameters.
- `resnet18` is torchvision's with the stem that is usual for 32 x 32 images: a 3 x 3 convolution
  of stride 1 and no pooling. With ImageNet's stem little would be left of such images.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

Shape = tuple[int, ...]


def dense(widths: list[int], classes: int, *, norm: bool = False) -> nn.Sequential:
    """Return Linear-[BatchNorm]-ReLU for each width after the first, and a last Linear."""
    layers: list[nn.Module] = [nn.Flatten()]
    for before, width in pairwise(widths):
        layers += [nn.Linear(before, width), *([nn.BatchNorm1d(width)] if norm else []), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], classes))


def convolutions(channels: list[int], *, padding: int = 1) -> list[nn.Module]:
    """Return Conv(3 x 3)-BN-LReLU for each number of channels after the first."""
    layers: list[nn.Module] = []
    for before, after in pairwise(channels):
        layers.append(nn.Conv2d(before, after, 3, padding=padding))
        layers += [nn.BatchNorm2d(after), nn.LeakyReLU()]
    return layers


def cnn9(shape: Shape, classes: int) -> nn.Sequential:
    """Return Table 4's: 9 convolutional layers, 19 trainable ones."""
    return nn.Sequential(
        *convolutions([shape[0], 128, 128, 128]),
        *(nn.MaxPool2d(2), nn.Dropout(0.25)),
        *convolutions([128, 256, 256, 256]),
        *(nn.MaxPool2d(2), nn.Dropout(0.25)),
        *convolutions([256, 512, 256, 128], padding=0),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, classes)),
    )


def cnn6(shape: Shape, classes: int) -> nn.Sequential:
    """Return Table 5's, for open-set noise: 6 convolutional layers, 13 trainable ones."""
    return nn.Sequential(
        *(*convolutions([shape[0], 64, 64]), nn.MaxPool2d(2)),
        *(*convolutions([64, 128, 128]), nn.MaxPool2d(2)),
        *(*convolutions([128, 196, 196]), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(196 * (shape[1] // 8) * (shape[2] // 8), classes)),
    )


def small_cnn(shape: Shape, classes: int) -> nn.Sequential:
    """Return the cpu preset's for colour images; not the paper's."""
    return nn.Sequential(
        *(*convolutions([shape[0], 32]), nn.MaxPool2d(2)),
        *(*convolutions([32, 64]), nn.MaxPool2d(2)),
        *(*convolutions([64, 128]), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Linear(128, classes)),
    )


class Words(nn.Module):
    """Word vectors that stay as they are; token 0 is no word.

    Args:
        vectors: float, (words + 1, size), row 0 zero.
    """

    vectors: Tensor

    def __init__(self, vectors: Tensor) -> None:
        super().__init__()
        self.register_buffer("vectors", vectors, persistent=False)


class Sequence(Words):
    """Return a text's words as a sequence, (n, size, length), from tokens (n, length)."""

    def forward(self, tokens: Tensor) -> Tensor:
        return self.vectors[tokens].transpose(1, 2)


class Mean(Words):
    """Return the mean of a text's words, (n, size), from tokens (n, length)."""

    def forward(self, tokens: Tensor) -> Tensor:
        words = (tokens > 0).sum(1, keepdim=True).clamp(min=1)
        return self.vectors[tokens].sum(1) / words


def cnn1d(vectors: Tensor, classes: int) -> nn.Sequential:
    """Return Table 6's, for SET1 on NEWS."""
    convolution = nn.Conv1d(vectors.shape[1], 100, 3), nn.ReLU()
    pool = nn.AdaptiveMaxPool1d(1), nn.Flatten()
    return nn.Sequential(Sequence(vectors), *convolution, *pool, nn.Linear(100, classes))


def mlp_words(vectors: Tensor, classes: int) -> nn.Sequential:
    """Return Table 7's, for SET2 on NEWS."""
    hidden = nn.Linear(vectors.shape[1], 300), nn.Softsign(), nn.Linear(300, 300), nn.Softsign()
    return nn.Sequential(Mean(vectors), *hidden, nn.Linear(300, classes))


def resnet18(shape: Shape, classes: int) -> nn.Module:
    """Return torchvision's ResNet-18 with a stem for 32 x 32 images."""
    try:
        from torchvision.models import resnet18 as torchvisions
    except (ImportError, OSError, RuntimeError) as error:  # missing, or made for another torch
        reason = "" if isinstance(error, ModuleNotFoundError) else f" ({error})"
        advice = "pip install torchvision in the release that belongs to your torch"
        came = f"it cannot be imported{reason}"
        raise SystemExit(f"resnet18: needs torchvision, but {came}; {advice}") from None
    net: Any = torchvisions(num_classes=classes)
    net.conv1 = nn.Conv2d(shape[0], 64, 3, padding=1, bias=False)
    net.maxpool = nn.Identity()
    return net


IMAGES: dict[str, Callable[[Shape, int], nn.Module]] = {
    "deep": lambda shape, k: dense([_pixels(shape), *[500] * 5], k, norm=True),
    "wide": lambda shape, k: dense([_pixels(shape), 10_000, 100], k, norm=True),
    "mlp": lambda shape, k: dense([_pixels(shape), 256, 256], k),
    "mlp-bn": lambda shape, k: dense([_pixels(shape), 256, 256], k, norm=True),
    "cnn9": cnn9,
    "cnn6": cnn6,
    "small-cnn": small_cnn,
    "resnet18": resnet18,
}
TEXTS = {"cnn1d": cnn1d, "mlp-words": mlp_words}


def make(name: str, shape: Shape, classes: int, vectors: Tensor | None = None) -> nn.Module:
    """Return the network by name.

    Args:
        name: a key of `IMAGES` or `TEXTS`.
        shape: of an input: (channels, height, width), or (length,) of tokens.
        classes: how many logits it returns.
        vectors: float, (words + 1, size), for texts.
    """
    if name in IMAGES:
        return IMAGES[name](shape, classes)
    assert vectors is not None
    return TEXTS[name](vectors, classes)


def parameters(net: nn.Module) -> int:
    """Return how many numbers are trained."""
    return sum(parameter.numel() for parameter in net.parameters())


def trainable_layers(net: nn.Module) -> int:
    """Return how many layers have parameters of their own, as the paper counts."""
    return sum(any(True for _ in layer.parameters(recurse=False)) for layer in net.modules())


def _pixels(shape: Shape) -> int:
    return int(torch.Size(shape).numel())
