"""scikit-learn's own checks of an estimator, all of them."""

from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from sigua_sklearn import PrunedClassifierCV, SIGUAClassifier

ESTIMATORS = [SIGUAClassifier(epochs=3), PrunedClassifierCV(LogisticRegression(max_iter=500))]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learns_check(estimator, check):
    """That of the array API is skipped by scikit-learn, unless SCIPY_ARRAY_API is set."""
    check(estimator)
