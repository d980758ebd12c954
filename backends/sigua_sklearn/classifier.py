"""`SIGUAClassifier`: fit, predict and score where some labels are wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

import sigua
from sigua import checks
from sigua.batches import enough
from sigua_sklearn._choice import checked_mask, diagnosed, held_out, method_of
from sigua_sklearn._network import Factory, Rows, factory, probabilities
from sigua_sklearn._progress import Bar
from sigua_sklearn._training import Part, Run, Settings, train

READ: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}


class SIGUAClassifier(ClassifierMixin, BaseEstimator):
    """A neural network for labels of which some are wrong, whether or not you know how many.

    With `method="auto"` a part of the labels is held out, as they are, and a network is trained on
    the others with each of `sigua.candidates()`: plainly, and with methods that drop labels which
    the network does not agree with. Plain training is kept, unless another one is clearly better by
    what it predicts for the held-out examples (`sigua.choose`), and is trained again on all. That
    some of the held-out labels are wrong does no harm, unless errors follow from the input.

    Labels may be words, `X` a data frame or sparse. The default network standardises `X` (sparse
    features are divided by their largest absolute value); a network of yours gets `X` as it is.

    Args:
        method: "auto", "standard", "sigua_ag", or a method such as
            `sigua.sigua_sl(noise_rate=0.3, delta=0.1)`, which is then trained once, on all.
        module: a function (n_features, n_classes) that returns a `torch.nn.Module` from X's rows,
            float32, to logits. By default two hidden layers of 128 with dropout. To be pickled with
            the classifier it has to be a function by name, not a lambda.
        epochs: passes over the data, for each training.
        batch_size: the size of a mini-batch. By default 128, or a tenth of the examples, but at
            least 16.
        learning_rate: Adam's in the beginning; it decays to 0 linearly.
        warmup: of methods that are not given as values, see `sigua.sigua_ag`. By default a third of
            the epochs.
        validation_fraction: the share of the labels that is held out by "auto", in [0, 1). With
            fewer than 20 held-out labels plain training is kept.
        device: where the network is trained, such as "cuda".
        random_state: an integer, for the same result each time on one machine.
        verbose: whether to show a progress bar.

    Attributes:
        classes_: the classes, in the order of `predict_proba`'s columns.
        method_: the method that the network was trained with.
        choice_: what `sigua.choose` returned: held-out accuracies, and what was kept; print it.
            None if nothing was chosen.
        history_: a dict for each epoch of each training: `method`, `epoch`, `loss`, `accuracy` (the
            share of training labels that the network predicts in training), `dropped` (the share
            of unchecked labels that the method leaves out) and, where labels are held out,
            `held_out_accuracy`. The last `epochs` of them are the final training.
        label_issues_: bool, (n_samples,): training labels that look wrong, by their margins in the
            final training: as many as its method drops in the end. If it drops none, as plain
            training does, those that stand out (`sigua.rank_label_issues`), or else as many as the
            most confident predictions for held-out examples reject (`diagnosis.surest.low`); where
            classes overlap, half of these may be right. Checked labels are none.
        label_quality_: float, (n_samples,), in [0, 1]: how right each label looks.
        noise_rate_: an estimate of the share of wrong labels: what the method drops or stands out,
            or else what `sigua.diagnose` says of the held-out labels, of which it needs 50. It is
            too high where classes overlap, and too low where one class is often given for another,
            for the network then learns some of these labels. NaN if nothing tells it, for instance
            because a method that drops nothing was given, so that no label was held out.
        module_: the network.
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.

    Raises:
        ValueError: arguments that do not fit, a single class, or a training that diverges.

    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = SIGUAClassifier("standard", epochs=5, random_state=0).fit(X, y)
    >>> clf.score(X, y) > 0.95
    True
    """

    def __init__(
        self,
        method: sigua.Method | str = "auto",
        *,
        module: Factory | None = None,
        epochs: int = 40,
        batch_size: int | None = None,
        learning_rate: float = 3e-3,
        warmup: float | None = None,
        validation_fraction: float = 0.2,
        device: str = "cpu",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.module = module
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.warmup = warmup
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: ArrayLike, checked: ArrayLike | None = None) -> SIGUAClassifier:
        """Fit to labels of which some may be wrong.

        Args:
            X: dense or sparse, or a data frame, shape (n_samples, n_features).
            y: numbers or words, shape (n_samples,); those of checked examples corrected.
            checked: whose labels are surely right: a mask, bool, (n_samples,), or indices. From
                100 on, or 10 a class if that is more, half of each mini-batch is checked, and half
                of them choose the method instead of labels as given. In a search give a mask, which
                is split as X is; indices would be taken for rows of each part.
        """
        self._check_arguments()
        asked = method_of(self.method, self._warmup())
        before = dict(self.__dict__)
        try:
            self._fit_checked(X, y, checked, asked)
        except BaseException:  # a classifier that was fitted stays as it was
            self.__dict__ = before
            raise
        return self

    def _fit_checked(
        self, X: Any, y: ArrayLike, checked: ArrayLike | None, asked: sigua.Method | None
    ) -> None:
        checks.same_order("checked", checked, X, "X")
        X, y = validate_data(self, X, y, **READ)
        check_classification_targets(y)
        self.classes_, given = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("y: must have at least two classes, got 1 class; try other labels")
        known = checked_mask(checked, len(given))
        part = Part(self._scaled(X), given.astype(np.int64), known)
        if known.all():  # nothing is left to doubt
            part, asked = replace(part, checked=~known), sigua.standard()
        self._name_issues(self._fit(part, asked), part.given, known)

    def _scaled(self, X: Any) -> Any:
        """Return X as the network reads it, and remember how."""
        with np.errstate(over="ignore"):
            fits = np.isfinite((X.data if issparse(X) else X).astype(np.float32)).all()
        if not fits:
            raise ValueError(
                "X: must be finite in float32, in which the network reads it, got larger values; "
                "try a RobustScaler before it in a pipeline"
            )
        self.scaler_ = None
        if self.module is None:
            self.scaler_ = MaxAbsScaler() if issparse(X) else StandardScaler()
            X = self.scaler_.fit_transform(X)
        return X

    def _fit(self, part: Part, asked: sigua.Method | None) -> Run:
        """Choose a method, unless one was asked for, and return the training with it on all."""
        random = check_random_state(self.random_state)
        chooses = held_out(part, self.validation_fraction, len(self.classes_), random)
        candidates = sigua.candidates(self._warmup(), len(self.classes_))
        tried = candidates if asked is None and chooses.any() else ()
        with Bar(self.verbose, self.epochs * (len(tried) + 1)) as bar:
            settings = self._settings(part, int(random.randint(2**31 - 1)), bar)
            runs = {
                method: train(method, part.of(~chooses), settings, part.of(chooses))
                for method in tried
            }
            self.choice_ = _choice(runs, part.of(chooses)) if tried else None
            kept = self.choice_.kept if self.choice_ else sigua.standard()
            self.method_ = kept if asked is None else asked
            final = train(self.method_, part, settings)
        if tried:
            final.diagnosis = diagnosed(runs[self.method_].predicted, part.of(chooses))
        self.module_ = final.network.eval()
        self.history_ = [seen for run in [*runs.values(), final] for seen in run.history]
        return final

    def _name_issues(
        self, final: Run, given: NDArray[np.int64], checked: NDArray[np.bool_]
    ) -> None:
        """Flag as many labels as were dropped, those that stand out, or as many as confident
        predictions reject.
        """
        margins, found = final.margins, final.diagnosis
        margins[:, checked] = 1.0  # their labels are right, and some may never have been drawn
        dropped = final.history[-1]["dropped"] * float((~checked).mean())
        how = {"noise_rate": dropped} if dropped else {"labels": given}
        issues = sigua.rank_label_issues(margins=margins, **how)
        self.noise_rate_ = issues.count / len(given)
        if not issues.count and not checked.all():
            self.noise_rate_ = found.noise_rate.value if found else float("nan")
            rejected = found.surest.low if found else 0.0
            issues = sigua.rank_label_issues(margins=margins, noise_rate=rejected)
        self.label_issues_ = issues.suspects & ~checked
        self.label_quality_ = 1 - issues.scores

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """Return p(class | x), float32, (n_samples, n_classes), in the order of `classes_`."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **READ)
        X = X if self.scaler_ is None else self.scaler_.transform(X)
        return probabilities(self.module_.to(self.device), Rows(X, str(self.device)))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row, (n_samples,)."""
        p = self.predict_proba(X)  # which checks that there has been a fit
        return np.asarray(self.classes_[p.argmax(axis=1)])

    def _check_arguments(self) -> None:
        checks.whole("epochs", self.epochs, 1, "try 40")
        if self.batch_size is not None:
            checks.whole("batch_size", self.batch_size, 2, "try 128")
        checks.number("learning_rate", self.learning_rate, 0, 1, "try 3e-3")
        fraction = self.validation_fraction
        checks.number("validation_fraction", fraction, 0, 1, "try 0.2", closed=False)
        try:
            torch.empty(0, device=self.device)
        except (AssertionError, RuntimeError, TypeError) as error:  # the first: there is no CUDA
            raise ValueError(
                f"device: must be one that PyTorch has here, got {self.device!r}; try 'cpu'"
            ) from error

    def _warmup(self) -> float:
        return max(round(self.epochs / 3), 1) if self.warmup is None else self.warmup

    def _settings(self, part: Part, seed: int, bar: Bar) -> Settings:
        shape = part.X.shape[1], len(self.classes_)
        share = float(part.checked.mean())
        if part.checked.sum() >= enough(len(self.classes_)):
            share = max(share, 0.5)
        return Settings(
            network=factory(self.module, *shape),
            epochs=self.epochs,
            batch_size=self.batch_size,
            share=share,
            learning_rate=self.learning_rate,
            device=str(self.device),
            seed=seed,
            tell=bar.tell,
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _choice(runs: dict[sigua.Method, Run], held_out: Part) -> sigua.Choice:
    """Return which method to keep, by who was held out: all of them checked, or none."""
    predicted = {method: run.predicted for method, run in runs.items()}
    return sigua.choose(predicted, held_out.given, checked=bool(held_out.checked.all()))
