"""`kbroker jvm`: the JVM that ZooKeeper runs on, for a user's own Spark jobs."""


def jvm() -> None:
    """Print the home of a JVM, for Spark.

    \b
    export JAVA_HOME=$(kbroker jvm)
    """
    from kbroker.dev.java import java_home

    print(java_home())
