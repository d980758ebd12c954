"""The examples of trainers run as they say, and forget what plain training memorises."""

import re
from pathlib import Path

import pytest
from programs import accuracies, launch

FOLDER = Path(__file__).parents[1] / "examples" / "trainers"


def run(name, *options):
    """Return what an example prints; warnings are errors."""
    return launch("-W", "error", *options, FOLDER / name)


@pytest.mark.parametrize(
    ("name", "least", "gain"),
    [
        ("accelerate_fit.py", 85, 10),
        ("lightning_fit.py", 85, 10),
        ("transformers_fit.py", 65, 8),
        ("causal_fit.py", 95, 25),
    ],
)
def test_an_example_forgets_what_plain_training_memorises(name, least, gain):
    found = accuracies(run(name))
    assert list(found) == ["plain", "SIGUA"]
    assert found["SIGUA"] > max(least, found["plain"] + gain)


def test_keras_tuner_chooses_by_wrong_labels_what_forgets_them():
    """What it prints as chosen is a method, and that beats plain training on clean digits."""
    # KerasTuner names threads in an old way, and Keras's weights on JAX copy in one.
    said = run("keras_search.py", "-W", "ignore::DeprecationWarning")
    chosen = re.search(r"chosen: sigua_sl\(noise_rate=0.5, delta=(.+?), gamma=(.+?),", said)
    delta, gamma = map(float, chosen.groups())
    assert 0.05 <= delta <= 0.5
    assert 1e-3 <= gamma <= 1
    found = accuracies(said)
    assert found["SIGUA"] > found["plain"] + 5


def test_skorch_chooses_a_method_that_forgets_and_cleans_better_with_it():
    said = run("skorch_search.py")
    scores = re.findall(r"(\d+\.\d)% of the held-out labels.*: (\w+)\(", said)
    assert [name for _, name in scores] == ["standard", "self_teaching", "sigua_sl"]
    assert max(float(score) for score, _ in scores[1:]) > float(scores[0][0]) + 5
    found = accuracies(said)
    assert found["chosen"] > max(80, found["plain"] + 6)
    cleaned = "plain, without what cleanlab finds by "
    assert found[cleaned + "SIGUA"] > max(85, found[cleaned + "plain"])
