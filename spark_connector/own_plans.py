"""A plan of its own for each use of a frame, where Spark keeps one for all of them.

Up to 4.3 Spark plans a Python source once per loaded frame or view, and a query that pushes filters replaces that plan
for all others, also for one without filters: they would miss rows. Later versions plan each scan by itself. Here an
optimizer rule does the same before filters are pushed: it puts a copy of the frame's source wherever the frame stands.
The rule is Java, compiled in the driver's JVM by the compiler that Spark itself generates code with: no jar is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "kbroker.OwnPlans"
PYTHON = "org.apache.spark.sql.execution.datasources.v2.python"
RULE = """
package kbroker;

import java.lang.reflect.Field;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Function1;
import scala.Option;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

public class OwnPlans extends Rule {
    public static class OwnSource extends PythonDataSourceV2 {
        private final PythonDataSourceV2 shared;

        public OwnSource(PythonDataSourceV2 shared, String name) {
            this.shared = shared;
            setShortName(name);
        }

        public PythonDataSourceCreationResult getOrCreateDataSourceInPython(
                String name, CaseInsensitiveStringMap options, Option schema) {
            return shared.getOrCreateDataSourceInPython(name, options, schema);
        }
    }

    public static class Builder extends AbstractFunction1 {
        public Object apply(Object session) { return new OwnPlans(); }
    }

    public static class Copies extends AbstractPartialFunction {
        public boolean isDefinedAt(Object node) {
            if (!(node instanceof DataSourceV2Relation)) return false;
            Object table = ((DataSourceV2Relation) node).table();
            return table instanceof PythonTable && !(field(table, "ds") instanceof OwnSource);
        }

        public Object applyOrElse(Object node, Function1 otherwise) {
            if (!isDefinedAt(node)) return otherwise.apply(node);
            DataSourceV2Relation relation = (DataSourceV2Relation) node;
            Object[] parts = new Object[relation.productArity()];
            for (int at = 0; at < parts.length; at++) {
                Object part = relation.productElement(at);
                parts[at] = part == relation.table() ? copy(part) : part;
            }
            return ((TreeNode) relation).makeCopy(parts);
        }
    }

    public TreeNode apply(TreeNode plan) { return ((LogicalPlan) plan).transformUp(new Copies()); }

    static Object copy(Object table) {
        String name = (String) field(table, "shortName");
        OwnSource own = new OwnSource((PythonDataSourceV2) field(table, "ds"), name);
        return new PythonTable(own, name, (StructType) field(table, "outputSchema"));
    }

    static Object field(Object of, String name) {
        try {
            Field field = PythonTable.class.getDeclaredField(name);
            field.setAccessible(true);
            return field.get(of);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }
}
"""


def plan_each_use(spark: SparkSession) -> None:
    """Make the session plan each use of a Python source by itself; raises RuntimeError where that cannot be done."""
    if getattr(spark, "_jsparkSession", None) is None:
        raise RuntimeError(
            "filters cannot be pushed through Spark Connect: Spark would use one plan for all uses of a frame, and rows"
            " would be missing. Say what to read in the options instead: startingTimestamp, startingOffsets, …"
        )
    session: Any = spark._jsparkSession
    gateway: Any = spark.sparkContext._gateway
    try:
        if _plans_each_scan(gateway):
            return
        if NAME not in session.extensions().buildOptimizerRules(session).mkString():
            session.extensions().injectOptimizerRule(_rule_builder(gateway))
    except Exception as error:
        raise RuntimeError(
            f"filters cannot be pushed with Spark {spark.version}: it would use one plan for all uses of a frame, and"
            f" rows would be missing; the rule against that was not accepted: {error}"
        ) from error


def _plans_each_scan(gateway: Any) -> bool:
    """Whether this Spark needs no rule: its scans carry their plans."""
    jvm = gateway.jvm
    scan = jvm.org.apache.spark.util.Utils.classForName(f"{PYTHON}.PythonScan", True, False)
    return "readInfo" in [field.getName() for field in scan.getDeclaredFields()]


def _rule_builder(gateway: Any) -> Any:
    """Return a scala.Function1 that makes the rule; the compiled class stays for the JVM's life."""
    jvm = gateway.jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(RULE)
    builder = compiler.getClassLoader().loadClass(f"{NAME}$Builder")
    no_types, nothing = gateway.new_array(jvm.java.lang.Class, 0), gateway.new_array(jvm.java.lang.Object, 0)
    return builder.getDeclaredConstructor(no_types).newInstance(nothing)
