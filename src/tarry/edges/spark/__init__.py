"""The data pipeline on PySpark. Only this package imports pyspark, and only when it is used."""
