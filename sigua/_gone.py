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
}


def sentence(name: str) -> str | None:
    """Return what to say where an old name is used; None for any other."""
    new = _NEW.get(name)
    return new and f"{name}: must be spelt as in this version, got an old name; try {new}"


def refuse(names: Iterable[str]) -> None:
    """Raise ValueError on an old name."""
    for name in names:
        if said := sentence(name):
            raise ValueError(said)
