"""The built-in detectors."""

from tarry.edges.spark.transforms.anomalies.messages import MESSAGE_RULES
from tarry.edges.spark.transforms.anomalies.operations import OPERATION_RULES
from tarry.edges.spark.transforms.anomalies.registry import Registry
from tarry.edges.spark.transforms.anomalies.statistical import LEVELS

RULES = Registry((*MESSAGE_RULES, *OPERATION_RULES))
STATISTICAL = Registry(LEVELS)
BUILT_IN = RULES.with_detector(*LEVELS)
