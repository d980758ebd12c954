"""PyTorch trains by a sparse T as by the dense one, and on 100,000 classes where that cannot."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import sigua
from sigua import TransitionMatrix
from sigua.transition import _sparse
from sigua_torch import SIGUALoss

EPS = {torch.float64: 2.3e-16, torch.float32: 1.2e-7}
LEFT_OUT = 1e-8  # of a row of T^-1, in all


def confusions(k, size=5, noise=0.4, seed=0):
    """Each class of a group of `size` is confused with two others of it, and with some of its own.

    With a single group this is every class with two others at random.
    """
    rng = np.random.default_rng(seed)
    each = np.repeat(np.arange(k), 2)
    others = each // size * size + (each + rng.integers(1, size, 2 * k)) % size
    others = np.minimum(others, k - 1)
    rates = rng.uniform(0, noise, k)
    shares = (rng.dirichlet([1, 1], k) * rates[:, None]).ravel()
    return sp.coo_array((shares, (each, others)), shape=(k, k)) + sp.diags_array(1 - rates)


def chain(k, noise=0.4):
    """Each class is confused with its neighbours: no groups."""
    off = np.full(k - 1, noise / 2)
    on = np.full(k, 1 - noise)
    on[[0, -1]] = 1 - noise / 2
    return sp.diags_array([off, on, off], offsets=[-1, 0, 1])


METHODS = {
    "BC": sigua.backward_correction,
    "nnBC": sigua.nn_backward_correction,
    "label": lambda T: sigua.sigua_bc(T, gamma=0.5),
    "batch": lambda T: sigua.sigua_bc(T, gamma=0.5, over="batch"),
    "classes": lambda T: sigua.sigua_bc(T, gamma=0.5, over="classes"),
    "forward": sigua.forward_correction,
}


def both(rows, name, **options):
    """Return the criterion of the sparse T, and of the dense one."""
    make = METHODS[name]
    return (SIGUALoss(make(TransitionMatrix(r)), **options) for r in (rows, rows.toarray()))


def run(criterion, logits, *rest):
    logits = logits.detach().requires_grad_()
    value = criterion(logits, *rest)
    value.sum().backward()
    return value.detach(), logits.grad


def assert_alike(rows, name, logits, target, *, slack=0.0, **options):
    """Masks are equal; values and gradients within a few eps, and what T^-1 leaves out."""
    sparse, full = both(rows, name, **options)
    value, gradient = run(sparse, logits, target)
    want, slopes = run(full, logits, target)
    for mask, expected in zip(sparse.split, full.split, strict=True):
        assert torch.equal(mask, expected)
    tolerance = 64 * EPS[logits.dtype] + LEFT_OUT
    losses = 20 if sparse.reduction == "mean" else 20 * logits.shape[0]
    assert (value - want).abs().max() <= losses * tolerance
    n = 1 if sparse.reduction == "none" else target.numel() or 1
    assert (gradient - slopes).abs().max() <= 8 * tolerance / n


def batch(k, n=60, dtype=torch.float64, shape=()):
    generator = torch.Generator().manual_seed(k)
    logits = 3 * torch.randn(n, k, *shape, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, k, (n, *shape), generator=generator)
    return logits.to(dtype), labels


@pytest.mark.filterwarnings("ignore:over='classes'")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("rows", [confusions(5), confusions(50), chain(200)], ids=[5, 50, 200])
def test_torch_trains_by_a_sparse_matrix_as_by_the_dense_one(rows, name, dtype):
    assert_alike(rows, name, *batch(rows.shape[0], dtype=dtype))


@pytest.mark.parametrize("name", ["label", "forward"])
@pytest.mark.parametrize(
    "options",
    [
        {"weight": torch.linspace(0.5, 2, 20, dtype=torch.float64)},
        {"label_smoothing": 0.1},
        {"base": nn.CrossEntropyLoss(reduction="none", label_smoothing=0.2)},
        {"reduction": "sum"},
        {"reduction": "none"},
        {"ignore_index": 3},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_of_the_criterion_do_the_same_for_a_sparse_matrix(name, options):
    assert_alike(confusions(20), name, *batch(20), **options)


@pytest.mark.parametrize("name", ["label", "forward"])
def test_every_shape_of_target_does_the_same_for_a_sparse_matrix(name):
    """Pixels, class probabilities, pixels of those, and a single example."""
    rows = confusions(20)
    logits, labels = batch(20, n=6, shape=(3, 4))
    assert_alike(rows, name, logits, labels)
    assert_alike(rows, name, logits, logits.flip(0).softmax(1))
    assert_alike(rows, name, logits[..., 0, 0], logits[..., 1, 1].softmax(1))
    assert_alike(rows, name, logits[0, :, 0, 0], labels[0, 0, 0])


def test_a_class_that_has_no_part_in_the_label_may_be_impossible():
    """Masked logits make the losses of other groups infinite and leave this group's as they are."""
    rows = confusions(10)
    logits, labels = batch(10)
    labels %= 5
    logits[:, 5:] = -torch.inf
    for name in ("BC", "forward"):
        criterion, _ = both(rows, name)
        alone, _ = both(sp.csr_array(rows.toarray()[:5, :5]), name)
        value, gradient = run(criterion, logits, labels)
        want, slopes = run(alone, logits[:, :5], labels)
        assert abs(value - want) <= 1e-13
        assert (gradient[:, :5] - slopes).abs().max() <= 1e-14
        assert (gradient[:, 5:] == 0).all()


@pytest.mark.parametrize("name", ["BC", "label"])
def test_an_impossible_label_of_a_short_row_contributes_nothing(name):
    """Class 2 is never mistaken, so that its row is filled up with what must not be 0 x inf."""
    rows = sp.block_diag([[[0.9, 0.1], [0.2, 0.8]], [[1.0]]])
    logits = torch.tensor([[0.5, 0.0, -torch.inf], [0.0, 1.0, 2.0]])
    assert_alike(rows, name, logits, torch.tensor([2, 1]))
    value, gradient = run(next(both(rows, name)), logits, torch.tensor([2, 1]))
    assert value.isfinite()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", ["label", "forward"])
def test_a_cast_or_a_move_keeps_the_tables_exact(name):
    logits, labels = batch(50)
    sparse, full = both(confusions(50), name)
    want = run(full, logits, labels)[0]
    assert abs(run(sparse.half().double(), logits, labels)[0] - want) <= 1e-7
    tables = sparse.correction.observed if name == "forward" else sparse.correction.inverse
    assert tables.columns.dtype == torch.int64
    assert not sparse.state_dict().keys() ^ full.state_dict().keys()


@pytest.mark.parametrize("name", ["label", "classes", "forward"])
@pytest.mark.filterwarnings("ignore:over='classes'")
def test_a_step_never_waits_for_the_device(name):
    """On the meta device every operation whose result depends on data raises."""
    criterion, _ = both(confusions(50), name)
    logits, labels = batch(50, dtype=torch.float32)
    run(criterion.to("meta"), logits.to("meta"), labels.to("meta"))


@pytest.mark.parametrize("name", ["label", "forward"])
def test_a_compiled_step_is_the_eager_one(name):
    criterion, _ = both(confusions(50), name)
    logits, labels = batch(50, dtype=torch.float32)
    value, gradient = run(criterion, logits, labels)
    compiled = torch.compile(criterion, fullgraph=True, backend="aot_eager")
    got, slopes = run(compiled, logits, labels)
    assert abs(got - value) <= 64 * EPS[torch.float32]
    assert (gradient - slopes).abs().max() <= 16 * EPS[torch.float32] / len(labels)


K = 100_000


class Largest(TorchDispatchMode):
    """Notes the number of entries of the largest tensor that anything makes."""

    entries = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.entries = max(self.entries, *sizes, 0)
        return result


MANY = {
    "symmetric": lambda: TransitionMatrix.symmetric(0.5, K),
    "pair": lambda: TransitionMatrix.pair(0.45, K),
    "groups": lambda: TransitionMatrix(confusions(K)),
    "chain": lambda: TransitionMatrix(chain(K, 0.1)),
}


@pytest.mark.parametrize("kind", MANY)
def test_a_network_trains_on_a_hundred_thousand_classes_without_an_array_of_k_by_k(kind):
    """That would have 10^10 entries; the largest has fewer than 2 * 10^7, and the loss falls."""
    torch.manual_seed(0)
    y = torch.randint(0, K, (16,))
    with Largest() as largest:
        for make in (sigua.sigua_bc, sigua.forward_correction):
            T = MANY[kind]()
            net = nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, K))
            criterion = SIGUALoss(make(T))
            optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
            losses = []
            for _ in range(4):
                optimizer.zero_grad()
                loss = criterion(net(torch.arange(16)), y)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            assert losses[-1] < losses[0] - 1
            assert not {"_rows", "inverse"} & vars(T).keys()
    assert 16 * K <= largest.entries < 2e7


def test_confusions_at_random_are_forward_corrected_and_refused_backward(monkeypatch):
    """Their inverse fills in beyond any table; the sentence says what else to do."""
    monkeypatch.setattr(_sparse, "MAX_ENTRIES", 2_000_000)  # to know sooner
    k = 20_000
    T = TransitionMatrix(confusions(k, size=k, noise=0.45))
    logits, labels = torch.zeros(4, k), torch.arange(4)
    value, _ = run(SIGUALoss(sigua.forward_correction(T)), logits, labels)
    observed = np.asarray(sp.csr_array(T.csr, shape=(k, k)).sum(axis=0))[:4] / k
    assert value.item() == pytest.approx(-np.log(observed).mean(), rel=4 * EPS[torch.float32])
    with pytest.raises(ValueError, match=r"^T: .*backward correction.* try forward_correction"):
        SIGUALoss(sigua.sigua_bc(T))


def test_a_class_that_is_observed_for_all_others_has_no_table_of_columns():
    i, j = np.arange(1, K), np.zeros(K - 1, int)
    rows = sp.coo_array((np.full(K - 1, 0.3), (i, j)), (K, K)) + sp.diags_array(
        [1] + [0.7] * (K - 1)
    )
    T = TransitionMatrix(rows)
    assert T.inverse_table.columns.shape == (K, 2)
    with pytest.raises(ValueError, match=r"^T: .* class 0, which is observed for 100000 of"):
        SIGUALoss(sigua.forward_correction(T))


@pytest.mark.parametrize("infinite", [[1], [2], [1, 2], [0]], ids=str)
@pytest.mark.parametrize("name", ["BC", "nnBC", "label", "batch"])
def test_a_class_of_probability_0_says_nothing_as_with_the_dense_one(name, infinite):
    """A row with -inf takes no side, and neither spoils the others, with class weights, too."""
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits[0, infinite] = -float("inf")
    for weight in (None, torch.tensor([1.0, 2.0, 0.5])):
        pair = sp.csr_array(TransitionMatrix.pair(0.3, 3).rows)
        found, wanted = both(pair, name, weight=weight)
        found, wanted = found.double(), wanted.double()
        got, want = (run(each, logits, torch.tensor([0, 1, 2, 0])) for each in (found, wanted))
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-7)
        assert torch.equal(found.split.good, wanted.split.good)
        assert not (found.split.good | found.split.bad)[0]
        assert all(each.isfinite().all() for each in got)
