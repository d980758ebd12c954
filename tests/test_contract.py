"""The core itself keeps the contract: the spec, and the step over NumPy's names."""

import numpy as np
from contract import Contract, Step

from sigua import confidence, reference, step
from sigua.conditions import reads


class TestReference(Contract):
    eps = float(np.finfo(np.float64).eps)

    def run(self, method, logits, labels, epoch=0, trusted=None):
        found = reference.step(method, logits, labels, epoch, trusted=trusted)
        return Step(found.objective, found.gradient, *found.split)

    test_options_compose = None  # it is what the options are compared with


class TestStep(Contract):
    """Without gradients, which NumPy has not."""

    eps = float(np.finfo(np.float64).eps)

    def run(self, method, logits, labels, epoch=0, *, where=None, trusted=None, **options):
        names, x, y = step.numpy_names, np.asarray(logits, float), np.asarray(labels)
        weight, smoothing = options.get("weight"), options.get("smoothing", 0.0)
        M = step.matrix(names, method, x)
        by_class, counts = (reads(method.condition, it) for it in ("confidence", "counts"))
        state = confidence.zeros(x.shape[1], counts) if by_class else None
        plain = step.CrossEntropy(None, smoothing)
        ranked = step.corrected_losses(names, method.correction, M, plain, x, y)
        loss = step.CrossEntropy(weight, smoothing)
        losses = step.corrected_losses(names, method.correction, M, loss, x, y)
        groups = options.get("groups")
        everyone = np.ones(len(x)) if where is None else 1.0 * where
        shares = everyone if weight is None or y.ndim == 2 else everyone * weight[y]
        chosen = step.select(
            names,
            method,
            method.at(epoch),
            ranked,
            valid=where,
            shares=shares,
            trusted=trusted,
            sums=lambda: step.class_sums(names, method.T.inverse_column_sums, plain, x),
            margins=step.Margins(names, names.softmax(x), y, state),
            groups=y if isinstance(groups, str) else groups,
        )
        total = (np.where(chosen.silent, 0.0, losses) * chosen.weights).sum()
        value = total / max(shares.sum(), 1)
        return Step(value, None, chosen.good, chosen.bad)
