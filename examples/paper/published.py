"""The numbers that the paper prints; most of its results are curves without numbers."""

from typing import Any

from experiments import NOISES

BESIDE = ["SIGUA_BC batch", "SIGUA_BC classes", "agreement", "forward"]
"""Methods that have no curve in the paper."""


def _row(values: list[Any]) -> dict[str, Any]:
    return dict(zip(NOISES, values, strict=True))


_SL = _row([(98.91, 0.19), (98.10, 0.30), (89.37, 0.82)])
_BC = _row([(99.42, 0.10), (97.73, 0.05), (99.47, 0.02)])
PAPER: dict[str, dict[str, dict[str, Any]]] = {
    # Mean and standard deviation as printed, (value,) where no deviation is; figures print none.
    "set1-mnist": {"SIGUA_SL": _SL},  # printed in Table 2
    "set2-mnist": {"SIGUA_BC": _BC},
    "set1-cifar10": {"SIGUA_SL": {"sym-20": (84.05,), "sym-50": (77.12,)}},  # printed in Table 8
    "set2-cifar10": {"SIGUA_BC": {"pair-45": (81.82,)}},
    "openset": {
        "standard": {"open-40": (56.44,)},
        "self-teaching": {"open-40": (79.72,)},
        "SIGUA_SL": {"open-40": (81.31,)},
        "BC": {"open-40": (52.03,)},
        "nnBC": {"open-40": (73.39,)},
        "SIGUA_BC": {"open-40": (74.33,)},
    },
    "gap": {"supervised": _row([(99.61, 0.02)] * 3), "SIGUA_SL": _SL, "SIGUA_BC": _BC},
    "robust": {
        "SIGUA_BC": _BC,
        "Huber": _row([(93.61, 0.25), (65.38, 0.33), (56.48, 0.67)]),
        "log-sum": _row([(94.35, 0.12), (67.46, 0.40), (57.38, 0.33)]),
    },
    "resnet18": {
        "9-layer CNN": _row([(84.05,), (77.12,), (81.82,)]),
        "ResNet-18": _row([(89.41,), (81.96,), (89.56,)]),
    },
}

PAPER_FIG1 = {
    # As the text says, in the order of the report's columns; the curves are in the figure only.
    ("deep", "StopGrad"): ["23", "41", "100", "100", "", "about 60"],
    ("deep", "SIGUA"): ["23", "95", "100", "below 1", "", "about 60"],
    ("wide", "StopGrad"): ["23", "59", "100", "95", "", "about 120"],
    ("wide", "SIGUA"): ["23", "95", "100", "below 1", "", "about 120"],
}
