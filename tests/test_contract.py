"""The executable spec keeps the contract of all backends."""

import numpy as np
from contract import Contract, Step

from sigua import reference


class TestReference(Contract):
    eps = float(np.finfo(np.float64).eps)

    def run(self, method, logits, labels, epoch=0):
        step = reference.step(method, logits, labels, epoch)
        return Step(step.objective, step.gradient, *step.split)
