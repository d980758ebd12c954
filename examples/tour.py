"""A tour: from a data set with wrong labels to a list of suspects, with the worst twenty drawn.

    python examples/tour.py --out pictures

Also a notebook: each `# %%` begins a cell in VS Code, Spyder, PyCharm and Jupytext. The data are
scikit-learn's 1,797 digits, some of whose labels are exchanged for those of similar digits; the
tour takes a quarter of a minute on a CPU. Needs torch, scikit-learn, matplotlib and sigua.
"""

# %% What we have: images, and labels of which some are wrong
# Here we make them wrong, and so know which. The right labels are used for no decision, but only to
# say in the end how well it went.
import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict, train_test_split
from torch import nn

import sigua
from sigua import plot
from sigua_torch import LabelHistory, SelectionMeter, SIGUALoss

parser = argparse.ArgumentParser(description="From wrong labels to a list of suspects.")
parser.add_argument("--out", type=Path, default=Path(), help="the folder for the pictures")
OUT = parser.parse_known_args()[0].out  # a notebook has arguments of its own
OUT.mkdir(parents=True, exist_ok=True)

pixels, digits = load_digits(return_X_y=True)
x, x_test, true, y_test = train_test_split(
    pixels / 16, digits, test_size=0.25, random_state=0, stratify=digits
)
T = sigua.mapped_transition({1: 7, 7: 1, 3: 8, 8: 3, 5: 6, 6: 5, 4: 9, 9: 4}, 0.35, 10)
y = sigua.corrupt_labels(true, T, seed=0)
wrong = y != true
print(f"{len(y)} labels, {wrong.mean():.0%} of them wrong")


def show(figure: Figure, name: str) -> None:
    """Save a picture, and show it in a notebook."""
    figure.savefig(OUT / name)
    print(f"drawn: {OUT / name}")
    if "ipykernel" in sys.modules:
        from IPython.display import display

        display(figure)


# %% Look at the noise before choosing a method
# Out-of-fold probabilities of any classifier will do, if it was stopped before it memorised.
p = cross_val_predict(LogisticRegression(C=0.1, max_iter=200), x, y, method="predict_proba")
diagnosis = sigua.diagnose(p, y)
print(diagnosis)

# %% Train plainly, and with agreement, which is told nothing
EPOCHS = 60
inputs, labels = torch.tensor(x).float(), torch.tensor(y)
test_inputs, test_labels = torch.tensor(x_test).float(), torch.tensor(y_test)


def train(method: sigua.Method) -> tuple[list[float], list, LabelHistory, nn.Module]:
    """Return test accuracies in percent and reports, both by epoch, what was noted, the network."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
    net.append(nn.Linear(128, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    criterion, meter, history = SIGUALoss(method), SelectionMeter(), LabelHistory(len(labels))
    accuracies, reports = [], []
    for epoch in range(EPOCHS):
        criterion.set_epoch(epoch)
        for index in torch.randperm(len(labels)).split(128):
            logits = net(inputs[index])
            optimizer.zero_grad()
            criterion(logits, labels[index]).backward()
            optimizer.step()
            meter.update(criterion.split)
            history.update(index, logits, labels[index])
        history.end_epoch()
        reports.append(meter.report())
        with torch.no_grad():
            found = net(test_inputs).argmax(dim=1) == test_labels
        accuracies.append(100 * found.float().mean().item())
    return accuracies, reports, history, net


plain, *_ = train(sigua.standard())
agreement, reports, history, net = train(sigua.sigua_ag(warmup=20))
for name, accuracies in {"plain": plain, "agreement": agreement}.items():
    print(f"{name}: {np.mean(accuracies[-10:]):.1f}% of the test digits right")
print(f"dropped in the end: {reports[-1].dropped:.0%}")  # an estimate of the noise rate

# %% See it
figure = Figure(figsize=(11, 4.4), layout="constrained")
left, right = figure.subplots(1, 2)
plot.accuracy_curves({"plain": plain, "agreement": agreement}, ax=left)
plot.selection(reports, ax=right)
right.axhline(100 * wrong.mean(), color="black", linewidth=1)  # how many labels are wrong
show(figure, "tour_training.png")

# %% Which labels are wrong?
# Those that the model has found unlikely, epoch by epoch. The share dropped says how many.
margins = history.margins
issues = sigua.rank_label_issues(margins=margins, noise_rate=reports[-1].dropped)
hits = wrong[issues.suspects]
print(
    f"{issues.count} suspects: {hits.mean():.0%} of them are wrong, "
    f"which is {hits.sum() / wrong.sum():.0%} of the wrong ones"
)

# %% The worst twenty
# What was given, and what the model says; red where the label was right after all.
with torch.no_grad():
    predicted = net(inputs).argmax(dim=1).numpy()
figure = Figure(figsize=(11, 9), layout="constrained")
for ax, i in zip(figure.subplots(4, 5).flat, issues.order[:20], strict=True):
    ax.imshow(x[i].reshape(8, 8), cmap="gray_r")
    color = "black" if wrong[i] else "red"
    ax.set_title(f"{i}: given {y[i]}, found {predicted[i]}", color=color, fontsize=10)
    ax.axis("off")
show(figure, "tour_suspects.png")
print(f"of the worst twenty {wrong[issues.order[:20]].sum()} are wrong")
