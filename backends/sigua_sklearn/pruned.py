"""`PrunedClassifierCV`: any classifier, fitted again without the labels that look wrong."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import cross_val_predict
from sklearn.utils import Tags, _safe_indexing, check_array, get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

import sigua

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
            stacklevel=4,
        )
        return None


def _has(name: str) -> Any:
    """Let scikit-learn find a method where the wrapped classifier has it."""
    return available_if(lambda self: hasattr(getattr(self, "estimator_", self.estimator), name))


class PrunedClassifierCV(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Any classifier, fitted without the labels that its own cross-validation finds wrong.

    Each label is judged by a classifier that has not seen it. As many labels of each class are
    dropped as the estimated transition matrix says are wrong, so that rare classes survive, and a
    clone is fitted to the others. The classifier must not be sure where it errs, as naive Bayes is:
    logistic regression or histogram gradient boosting will do.

    Args:
        estimator: a classifier with `predict_proba`.
        cv: as for `sklearn.model_selection.cross_val_predict`.
        n_jobs: likewise.

    Attributes:
        estimator_: the fitted clone.
        classes_: its classes.
        label_issues_: bool, (n_samples,): which labels were left out.
        noise_rate_: the share of them.

    Raises:
        ValueError: a single class, or what `estimator` and `cv` refuse, such as fewer examples of
            a class than folds.

    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, true = load_digits(return_X_y=True)
    >>> y = sigua.corrupt_labels(true, sigua.TransitionMatrix.symmetric(0.3, 10), seed=0)
    >>> clf = PrunedClassifierCV(LogisticRegression(C=0.1)).fit(X / 16, y)
    >>> bool((y != true)[clf.label_issues_].mean() > 0.8)
    True
    """

    def __init__(self, estimator: Any, *, cv: Any = 5, n_jobs: int | None = None) -> None:
        self.estimator = estimator
        self.cv = cv
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: ArrayLike) -> PrunedClassifierCV:
        """Cross-validate, flag, and fit a clone without what was flagged."""
        X, labels = indexable(X, column_or_1d(y, warn=True))
        labels = check_array(labels, ensure_2d=False, dtype=None, input_name="y")
        check_classification_targets(labels)
        classes, given = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ValueError("y: must have at least two classes, got 1 class; try other labels")
        p = cross_val_predict(
            self.estimator, X, labels, cv=self.cv, n_jobs=self.n_jobs, method="predict_proba"
        )
        issues = flag_by_class(p, given)
        kept = np.flatnonzero(~issues)
        self.estimator_ = clone(self.estimator).fit(_safe_indexing(X, kept), labels[kept])
        self.classes_, self.label_issues_ = self.estimator_.classes_, issues
        self.noise_rate_ = float(issues.mean())
        return self

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
