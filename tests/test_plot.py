"""The pictures show the numbers that they were given, with axes that say what they are."""

from types import SimpleNamespace

import numpy as np
import pandas
import pytest
from programs import launch

import sigua
from sigua import plot
from sigua.diagnostics import EpochReport


def labels(ax):
    return ax.get_xlabel(), ax.get_ylabel()


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_curves_are_means_over_the_seeds_with_a_band_of_one_deviation():
    ax = plot.accuracy_curves({"standard": [[80, 70, 60], [90, 70, 40]], "SIGUA_SL": [80, 90, 95]})
    first, second = (line.get_ydata() for line in ax.get_lines())
    assert first.tolist() == [85, 70, 50]
    assert second.tolist() == [80, 90, 95]
    band = ax.collections[0].get_paths()[0].vertices
    assert {tuple(point) for point in band} >= {(0, 80), (0, 90), (1, 70), (2, 40), (2, 60)}
    assert labels(ax) == ("epoch", "test accuracy (%)")
    assert legend(ax) == ["standard", "SIGUA_SL"]


def test_memorisation_has_the_three_curves_of_figure_1_in_percent():
    ax = plot.memorisation(intact=[0.9, 1.0], flipped=[0.1, 0.8], test=[0.85, 0.4])
    drawn = [line.get_ydata().tolist() for line in ax.get_lines()]
    assert drawn == [[90, 100], [10, 80], [85, 40]]
    assert labels(ax) == ("epoch", "accuracy (%)")
    assert len(legend(ax)) == 3


def test_transition_has_true_classes_for_rows_and_writes_percentages():
    T = sigua.mapped_transition({0: 2}, 0.25, 3)
    ax = plot.transition(T, names=["cat", "dog", "fox"])
    assert np.array_equal(ax.images[0].get_array(), T.rows)
    assert labels(ax) == ("observed class", "true class")
    written = {text.get_position(): text.get_text() for text in ax.texts}
    assert written[2, 0] == "25"  # x is the column
    assert written[0, 2] == "0"
    assert [text.get_text() for text in ax.get_yticklabels()] == ["cat", "dog", "fox"]
    assert len(plot.transition(sigua.TransitionMatrix.pair(0.4, 21)).texts) == 0  # too many


def test_histogram_counts_intact_and_flipped_in_the_same_bins():
    ax = plot.loss_histogram([0.0, 0.1, 0.2, 2.0, np.inf], [False, False, True, True, True], bins=2)
    intact, flipped = ([bar.get_height() for bar in bars] for bars in ax.containers)
    assert intact == [2, 0]
    assert flipped == [1, 1]
    assert legend(ax) == ["intact", "flipped"]
    assert "nats" in ax.get_xlabel()
    assert legend(plot.loss_histogram([0.5, 0.6])) == ["examples"]


def test_a_diagnosis_is_its_shares_with_their_intervals_and_the_share_of_right_labels():
    """One of two checked is wrong and rightly predicted: 50 % wrong, 100 % of truths known."""
    found = sigua.diagnose([[0.9, 0.1], [0.2, 0.8]], [0, 0], true_labels=[0, 1])
    ax = plot.diagnosis(found)
    names = [text.get_text() for text in ax.get_yticklabels()]
    drawn = dict(zip(names, (bar.lines[0].get_xdata()[0] for bar in ax.containers), strict=True))
    assert drawn["wrong labels"] == 50
    assert drawn["labels predicted, out of fold"] == 50
    assert drawn["true labels predicted"] == 100
    assert drawn["of wrong labels, the truth predicted"] == 100
    (segments,) = (part.get_segments() for part in ax.containers[0].lines[2])
    ends = 100 * found.noise_rate.low, 100 * found.noise_rate.high
    assert segments[0][:, 0] == pytest.approx(ends)
    assert ax.get_lines()[-1].get_xdata()[0] == 50
    assert legend(ax) == ["labels that are right"]


GOOD, BAD = [1.0, 0.75, 0.5], [0.0, 0.125, 0.25]


def written_by_a_trainer(folder):
    """What Lightning's CSVLogger writes: a row for each call, with gaps for what is elsewhere."""
    path = folder / "metrics.csv"
    rows = ["epoch,sigua/bad,sigua/good,sigua/noise_rate,step,val_loss", "0,,,,3,1.5"]
    rows += [f"{i},{bad},{good},{1 - good},{4 * i + 3}," for i, (good, bad) in enumerate(pairs())]
    path.write_text("\n".join(rows))
    return path


def pairs():
    return list(zip(GOOD, BAD, strict=True))


@pytest.mark.parametrize(
    "recorded",
    [
        lambda folder: {"loss": [2, 1, 0], "sigua_good": GOOD, "sigua_bad": BAD},
        lambda folder: SimpleNamespace(history={"sigua_good": GOOD, "sigua_bad": BAD}),
        lambda folder: [EpochReport(good, bad, 1 - good - bad) for good, bad in pairs()],
        written_by_a_trainer,
        lambda folder: pandas.read_csv(written_by_a_trainer(folder)),
    ],
    ids=["dictionary", "Keras", "reports", "path", "data frame"],
)
def test_a_selection_is_three_shares_in_percent_whoever_recorded_it(recorded, tmp_path):
    ax = plot.selection(recorded(tmp_path))
    drawn = [(line.get_xdata().tolist(), line.get_ydata().tolist()) for line in ax.get_lines()]
    assert drawn == [([0, 1, 2], shares) for shares in ([100, 75, 50], [0, 12.5, 25], [0, 25, 50])]
    assert labels(ax) == ("epoch", "share of the examples (%)")
    assert legend(ax) == ["descended on", "climbed on, or bad", "dropped"]


def test_a_figure_of_one_s_own_is_drawn_into(tmp_path):
    from matplotlib.figure import Figure

    figure = Figure()
    ax = figure.subplots()
    assert plot.accuracy_curves({"a": [1, 2]}, ax=ax) is ax
    plot.transition(sigua.TransitionMatrix.pair(0.4, 3)).figure.savefig(tmp_path / "T.png")
    assert (tmp_path / "T.png").read_bytes().startswith(b"\x89PNG")


PAIR = sigua.TransitionMatrix.pair(0.4, 3)
TABLE = pandas.DataFrame({"epoch": [0]})


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plot.accuracy_curves({"BC": np.zeros((2, 2, 2))}), "BC: must have shape"),
        (lambda: plot.accuracy_curves({"BC": []}), "BC: must have shape"),
        (lambda: plot.selection({"loss": [1]}), "history: must have sigua/good .*, got loss; try"),
        (lambda: plot.selection(TABLE), "history: must have .*, got epoch; try"),
        (lambda: plot.selection([0.5]), "history: must have .*, got list without names; try"),
        (lambda: plot.selection(3), "history: must have .*, got int without names; try"),
        (lambda: plot.loss_histogram([0.1, -1]), r"losses: must lie in \[0, inf\]"),
        (lambda: plot.loss_histogram([0.1], [True, False]), "flipped: must have an entry for"),
        (
            lambda: plot.memorisation(intact=[1.0], flipped=[50.0], test=[1.0]),
            "flipped: must be fractions .*, got 50; try dividing",
        ),
        (lambda: plot.transition(PAIR, names="ab"), "names: must name each class, got 2 for 3"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        draw()


def test_pyplot_is_left_alone_and_without_matplotlib_drawing_says_what_to_install():
    code = """
import sys
from sigua import plot
plot.accuracy_curves({"a": [1.0]})
assert "matplotlib.pyplot" not in sys.modules
for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
    sys.modules[name] = None
try:
    plot.accuracy_curves({"a": [1.0]})
except ModuleNotFoundError as error:
    print(error)
"""
    assert launch("-c", code).strip() == (
        "sigua.plot needs matplotlib, which is not installed: pip install 'sigua[plot]'"
    )
