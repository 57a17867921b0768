"""The data pipeline, on Spark through PySpark. The only part of Tarry that imports pyspark, and only when it is used."""
