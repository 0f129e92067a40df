"""The PySpark data source `kbroker`: topics as Spark DataFrames, read in parallel, without a jar.

Spark finds it through the top-level module `pyspark_kbroker`; the modules here are its parts.
"""
