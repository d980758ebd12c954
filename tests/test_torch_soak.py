"""Thousands of steps of everything that a data loader may send: nothing grows, nothing rots.

SIGUA_SOAK=20000 makes it as long as wanted; by default it takes seconds.
"""

import gc
import os

import pytest
import torch
from test_torch_graph import METHODS
from torch._dynamo.testing import CompileCounter

from sigua_torch import SIGUALoss

STEPS = int(os.environ.get("SIGUA_SOAK", "1200"))
K = 10
METHODS = {name: METHODS[name] for name in ("sl", "official", "bc", "batch", "floor", "forward")}
SIZES = [128, 1, 0, 77, 32, 2, 600]
KINDS = ["plain", "ignored", "all ignored", "impossible", "plain", "nan", "outside"]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
CYCLE = len(SIZES) * len(KINDS) * len(DTYPES)

each_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
pytestmark = pytest.mark.filterwarnings("ignore:a mini-batch of:UserWarning")


def kind_of(step):
    return KINDS[step // len(SIZES) % len(KINDS)]


def make_batch(step, generator):
    """Return logits and labels of the step's size, dtype and kind."""
    n, kind = SIZES[step % len(SIZES)], kind_of(step)
    dtype = DTYPES[step // (len(SIZES) * len(KINDS)) % len(DTYPES)]
    logits = 4 * torch.randn(n, K, generator=generator)
    labels = torch.randint(0, K, (n,), generator=generator)
    if n and kind == "impossible":  # the label of one example has probability 0
        logits[0, labels[0]] = -torch.inf
    elif n and kind == "nan":
        logits[n // 2, 0] = torch.nan
    elif n and kind == "outside":
        labels[n // 2] = K
    elif "ignored" in kind:
        labels[:: 1 if kind == "all ignored" else 3] = -100
    return logits.to(dtype), labels


def check_step(criterion, step, logits, labels):
    """Check that one call is finite, NaN or refused, as it should be."""
    leaf = logits.requires_grad_()
    kind = kind_of(step) if len(labels) else "plain"
    if kind == "outside":
        with pytest.raises(ValueError, match=r"^target: must be class indices in \[0, 10\), got"):
            criterion(leaf, labels)
        return
    loss = criterion(leaf, labels)
    loss.backward()
    good, bad = criterion.split
    assert loss.shape == ()
    assert not (good & bad).any()
    assert not ((good | bad) & (labels == -100)).any()
    if kind == "nan":  # divergence is not hidden
        assert loss.isnan()
    elif kind == "impossible" and len(labels) == 1:  # there is no other, so that it is told
        assert loss.isfinite() or loss == torch.inf
    else:
        assert loss.isfinite()
        assert leaf.grad.isfinite().all()


def live_tensors():
    gc.collect()
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())


@each_method
def test_each_batch_is_finite_or_nan_or_refused_as_it_should_be_and_leaves_no_tensor(method):
    """Changing sizes and dtypes, ignored, impossible and wrong labels, NaN."""
    criterion, generator = SIGUALoss(method), torch.Generator().manual_seed(0)
    counts = []
    for step in range(max(STEPS // len(METHODS), 2 * CYCLE)):
        criterion.set_epoch(step / 50)
        check_step(criterion, step, *make_batch(step, generator))
        if step % CYCLE == CYCLE - 1:
            counts.append(live_tensors())
    assert max(counts[1:]) <= counts[0]


def test_no_recompilation_once_each_size_and_kind_has_been_seen():
    """In one dtype: the first size, 0, 1, up to 512, above it, where selection is another."""
    torch._dynamo.reset()
    counter = CompileCounter()
    criterion = SIGUALoss(METHODS["sl"])
    compiled = torch.compile(criterion, backend=counter, fullgraph=True)
    generator = torch.Generator().manual_seed(0)
    for step in range(max(STEPS // 5, 4 * CYCLE // len(DTYPES))):
        logits, labels = make_batch(step, generator)
        criterion.set_epoch(step / 50)
        if kind_of(step) != "outside":  # in a graph, labels are not looked at
            compiled(logits.float().requires_grad_(), labels).backward()
    assert counter.frame_count <= 5
