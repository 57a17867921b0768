"""The built-in detectors."""

from tarry.edges.spark.transforms.anomalies import rules
from tarry.edges.spark.transforms.anomalies.registry import Registry
from tarry.edges.spark.transforms.anomalies.statistical import LEVELS

RULES = Registry(rules.RULES)
STATISTICAL = Registry(LEVELS)
BUILT_IN = RULES.with_detector(*LEVELS)
