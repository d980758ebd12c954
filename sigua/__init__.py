"""Train classifiers that forget what they should not have memorised (SIGUA, Han et al., ICML 2020).

    objective = sum_i loss_i * (good_i - gamma * bad_i) / n

The core is NumPy alone and is the spec; `sigua_torch`, `sigua_keras` and `sigua_jax` train with it.
`sigua_sklearn` is a scikit-learn classifier.
"""

from sigua import confidence, losses, reference
from sigua._method import Method
from sigua.batches import CheckedBatches
from sigua.choice import Choice, candidates, choose
from sigua.conditions import (
    Agreement,
    AllGood,
    Batch,
    Condition,
    Known,
    NoiseFloor,
    NonNegative,
    SmallLoss,
)
from sigua.counting import Interval, count_noise_rate, count_transition, transition_intervals
from sigua.diagnosis import Diagnosis, diagnose
from sigua.diagnostics import LabelIssues, label_margins, rank_label_issues
from sigua.estimate import estimate_noise_rate, estimate_transition, label_losses
from sigua.floor import noise_floor
from sigua.methods import (
    backward_correction,
    custom,
    forward_correction,
    nn_backward_correction,
    self_teaching,
    sigua_ag,
    sigua_bc,
    sigua_sl,
    standard,
    stop_grad,
)
from sigua.noise import corrupt_labels, corrupt_labels_by_instance, replace_inputs
from sigua.objective import Split, objective, signed_weights
from sigua.schedules import Knots, keep_rate, rate_to_count, rate_to_parts
from sigua.transition import TransitionMatrix, mapped_transition, random_transition

__version__ = "0.4.0"

__all__ = ["Agreement", "AllGood", "Batch", "CheckedBatches", "Choice", "Condition"]
__all__ += ["Diagnosis", "Interval", "Knots"]
__all__ += ["Known", "LabelIssues", "Method", "NoiseFloor", "NonNegative", "SmallLoss"]
__all__ += ["Split", "TransitionMatrix", "backward_correction", "candidates", "choose"]
__all__ += ["confidence", "corrupt_labels", "corrupt_labels_by_instance", "count_noise_rate"]
__all__ += ["count_transition", "custom", "diagnose"]
__all__ += ["estimate_noise_rate", "estimate_transition", "forward_correction"]
__all__ += ["keep_rate", "label_losses", "label_margins", "losses", "mapped_transition"]
__all__ += ["nn_backward_correction", "noise_floor", "objective", "random_transition"]
__all__ += ["rank_label_issues", "rate_to_count", "rate_to_parts", "reference", "replace_inputs"]
__all__ += ["self_teaching", "signed_weights", "sigua_ag", "sigua_bc", "sigua_sl", "standard"]
__all__ += ["stop_grad", "transition_intervals"]
