"""`PrunedClassifierCV`: any classifier, fitted again without the labels that look wrong."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import PredefinedSplit, check_cv, cross_val_predict
from sklearn.utils import Tags, _safe_indexing, check_array, get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

import sigua
from sigua import checks

MOST = 0.9
"""No class loses more than this share of its labels."""


def flag_by_class(p: NDArray[Any], given: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which labels look wrong, bool (n,), by out-of-fold probabilities (n, k).

    In each class as many as T says (`sigua.estimate_transition`), those with the lowest margins
    below 0. Probabilities are first divided by the class's mean at its own labels, as a class that
    is rare or hard is predicted with less confidence where its labels are right.
    """
    T, (n, k) = _transition(p, given), p.shape
    if T is None:
        return np.zeros(n, dtype=bool)
    counts = np.bincount(given, minlength=k)
    own = np.bincount(given, weights=p[np.arange(n), given], minlength=k)
    scaled = p / np.maximum(own / counts, 1e-6)
    margins = sigua.label_margins(scaled / scaled.sum(axis=1, keepdims=True), given)
    true = np.maximum(counts / n @ T.inverse, 0)
    wrong = 1 - true * T.rows.diagonal() / np.maximum(true @ T.rows, 1e-12)
    rates = np.clip(wrong, 0, MOST)
    issues = sigua.rank_label_issues(margins=margins, noise_rate=rates, labels=given)
    return issues.suspects & (margins < 0)


def _transition(p: NDArray[Any], given: NDArray[np.int64]) -> sigua.TransitionMatrix | None:
    """Return an estimate of T, or None, with a warning, if there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that classes overlap
            return sigua.estimate_transition(p, given)
    except ValueError as error:
        warnings.warn(
            f"estimator: no label is flagged, because it predicts too few of them ({error}); "
            "try a stronger classifier",
            stacklevel=5,
        )
        return None


def _refuse_missing(labels: NDArray[Any], folds: list[Any]) -> None:
    """Raise ValueError if a fold is predicted without a class of which there are several labels."""
    classes, counts = np.unique(labels, return_counts=True)
    for train, _ in folds:
        missing = ~np.isin(classes, labels[train]) & (counts > 1)
        if missing.any():
            raise ValueError(
                "cv: must train on each class in each fold, got one without class "
                f"{classes[missing].tolist()[0]!r}, whose labels would all look wrong; "
                "try StratifiedKFold(5, shuffle=True)"
            )


def _has(name: str) -> Any:
    """Let scikit-learn find a method where the wrapped classifier has it."""
    return available_if(lambda self: hasattr(getattr(self, "estimator_", self.estimator), name))


class PrunedClassifierCV(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Any classifier, fitted without the labels that its own cross-validation finds wrong.

    Each label is judged by a classifier that has not seen it. As many labels of each class are
    flagged as the estimated transition matrix says are wrong, so that rare classes survive, and a
    clone is fitted to the others. The classifier must not be sure where it errs, as naive Bayes is:
    logistic regression or histogram gradient boosting will do.

    Where classes overlap, right labels are flagged, too, and it is better to leave out none. So
    each fold is predicted as well by a clone that was fitted without what the other folds alone
    flag, and no label is left out if it is predicted clearly better without that (`sigua.choose`).

    Args:
        estimator: a classifier with `predict_proba`.
        cv: as for `sklearn.model_selection.cross_val_predict`.
        n_jobs: likewise.
        compare: whether to compare, from three folds on. Five cost 31 fits, instead of 6 without.

    Attributes:
        estimator_: the fitted clone.
        classes_: its classes.
        label_issues_: bool, (n_samples,): which labels look wrong.
        noise_rate_: the share of them; too high where classes overlap.
        choice_: what `sigua.choose` returned, which kept "pruned" or "plain", that is left out the
            label issues or none. None if nothing was flagged or compared.

    Raises:
        ValueError: a single class, a fold that is to be predicted without having seen a class, or
            what `estimator` and `cv` refuse.

    >>> from sklearn.datasets import load_digits
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> X, true = load_digits(return_X_y=True)
    >>> y = sigua.corrupt_labels(true, sigua.TransitionMatrix.symmetric(0.3, 10), seed=0)
    >>> clf = PrunedClassifierCV(KNeighborsClassifier()).fit(X, y)
    >>> clf.choice_.kept
    'pruned'
    >>> bool((y != true)[clf.label_issues_].mean() > 0.8)
    True
    """

    def __init__(
        self, estimator: Any, *, cv: Any = 5, n_jobs: int | None = None, compare: bool = True
    ) -> None:
        self.estimator = estimator
        self.cv = cv
        self.n_jobs = n_jobs
        self.compare = compare

    def fit(self, X: Any, y: ArrayLike) -> PrunedClassifierCV:
        """Cross-validate, flag, and fit a clone without what was flagged."""
        if not hasattr(self.estimator, "predict_proba"):
            raise ValueError(
                f"estimator: must be a classifier with predict_proba, got {self.estimator!r}; "
                "try CalibratedClassifierCV(estimator)"
            )
        checks.flag("compare", self.compare)
        X, labels = indexable(X, column_or_1d(y, warn=True))
        labels = check_array(labels, ensure_2d=False, dtype=None, input_name="y")
        check_classification_targets(labels)
        if len(np.unique(labels)) < 2:
            raise ValueError("y: must have at least two classes, got 1 class; try other labels")
        folds = list(check_cv(self.cv, labels, classifier=True).split(X, labels))
        _refuse_missing(labels, folds)
        plain, issues = self._flag(X, labels, folds)
        self.choice_ = None
        if self.compare and issues.any() and len(folds) > 2:
            predicted = {"pruned": self._predict_pruned(X, labels, folds), "plain": plain}
            self.choice_ = sigua.choose(predicted, labels)
        pruned = self.choice_ is None or self.choice_.kept == "pruned"
        kept = np.flatnonzero(~issues) if pruned else np.arange(len(labels))
        self.estimator_ = self._fit(X, labels, kept)
        self.classes_, self.label_issues_ = self.estimator_.classes_, issues
        self.noise_rate_ = float(issues.mean())
        return self

    def _fit(self, X: Any, labels: NDArray[Any], rows: NDArray[np.intp]) -> Any:
        return clone(self.estimator).fit(_safe_indexing(X, rows), labels[rows])

    def _flag(self, X: Any, labels: NDArray[Any], folds: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return what is predicted of each example, unseen, and which labels look wrong."""
        classes, given = np.unique(labels, return_inverse=True)
        p = cross_val_predict(
            self.estimator, X, labels, cv=folds, n_jobs=self.n_jobs, method="predict_proba"
        )
        return classes[p.argmax(axis=1)], flag_by_class(p, given)

    def _predict_pruned(self, X: Any, labels: NDArray[Any], folds: Any) -> NDArray[Any]:
        """Return what is predicted of each fold, which had no say in what was left out."""
        fold, predicted = np.empty(len(labels), dtype=int), np.empty_like(labels)
        for j, (_, rows) in enumerate(folds):
            fold[rows] = j
        for others, rows in folds:
            inner, part = PredefinedSplit(fold[others]), _safe_indexing(X, others)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # one of a class is left, or what fit has warned of
                _, issues = self._flag(part, labels[others], inner)
            clf = self._fit(X, labels, others[~issues])
            predicted[rows] = clf.predict(_safe_indexing(X, rows))
        return predicted

    @property
    def n_features_in_(self) -> int:
        """The number of features that the classifier has seen."""
        return int(self.estimator_.n_features_in_)

    @property
    def feature_names_in_(self) -> Any:
        """Their names, if it has seen any."""
        return self.estimator_.feature_names_in_

    def predict(self, X: Any) -> Any:
        """Return what the fitted classifier predicts."""
        check_is_fitted(self)
        return self.estimator_.predict(X)

    @_has("predict_proba")  # type: ignore[untyped-decorator]  # scikit-learn's
    def predict_proba(self, X: Any) -> Any:
        """Return its probabilities, in the order of `classes_`."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)

    @_has("decision_function")  # type: ignore[untyped-decorator]  # scikit-learn's
    def decision_function(self, X: Any) -> Any:
        """Return its decision function."""
        check_is_fitted(self)
        return self.estimator_.decision_function(X)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        tags.input_tags.categorical = inner.input_tags.categorical
        tags.classifier_tags.multi_class = inner.classifier_tags.multi_class
        return tags
