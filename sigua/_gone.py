"""What older versions had: one sentence each, which says the new spelling."""

from __future__ import annotations

from collections.abc import Iterable

_NEW = {
    "sigua_nf": "sigua.custom(sigua.NoiseFloor(sigua.noise_floor(noise_rate, k)), gamma=1.0)",
    "sigua_fc": (
        "sigua.custom(sigua.NoiseFloor(sigua.noise_floor(T)), gamma=1.0, correction='forward', T=T)"
    ),
    "mixture": "method='surest', with probabilities and labels",
    "dual-t": "method='surest', which trusts sure predictions, too",
    "gold": "sigua.count_transition(labels, true_labels, k) on the checked labels",
    "quantile": "method='surest', which rests on many examples of each class",
    "true_labels": "sigua.count_transition(labels, true_labels, k)",
    "losses": "probabilities and labels",
    "sigua_keras.SIGUALoss": "the callback SIGUA(method), or SIGUAModel(model, method)",
    "sigua_keras.losses.GeneralizedCrossEntropy": "keras.losses.CategoricalGeneralizedCrossEntropy",
    "sigua_keras.losses.LogSum": "a function of (y, y_pred) that returns a loss per example",
}


def sentence(name: str) -> str | None:
    """Return what to say where an old name is used; None for any other."""
    new = _NEW.get(name)
    return new and f"{name}: must be spelt as in this version, got an old name; try {new}"


def attribute(module: str, name: str) -> AttributeError:
    """Return the error for a name that a module does not have, or not any more."""
    old = name if module == "sigua" else f"{module}.{name}"
    return AttributeError(sentence(old) or f"module {module!r} has no attribute {name!r}")


def refuse(names: Iterable[str]) -> None:
    """Raise ValueError on an old name."""
    for name in names:
        if said := sentence(name):
            raise ValueError(said)
